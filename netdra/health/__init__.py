"""Health of devices by their counters: samples and thresholds → faults, and how many devices may be tainted. Pure."""
