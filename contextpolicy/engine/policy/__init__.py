"""The values of a policy: fields, checks, budget, costs and calibration."""
