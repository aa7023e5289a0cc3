"""Where examples and client rows live while a run needs them: on the device, on the host, in files."""
