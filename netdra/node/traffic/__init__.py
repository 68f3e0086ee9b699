"""The traffic of pods: their interfaces (`interfaces`), and the counters of these as metrics (`reader`)."""
