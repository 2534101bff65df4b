"""One stored message as a policy sends it: repaired, truncated, with tool rules applied."""
