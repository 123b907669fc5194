"""Django looks for the commands of an app in this package. It contains only ``commands``, and imports nothing."""
