"""All that runs inside the app's process, where every line is paid for by somebody's request."""
