"""Generate load on an instance and measure it: clients, a fake model server, meters, plots."""
