"""Where examples, client rows and windows live while a run needs them: on the device, on the host, in files."""
