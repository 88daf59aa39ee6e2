"""What tasks do: look rows up in the snapshot of their micro-batch."""
