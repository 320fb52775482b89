"""Features of images, and how rows are dealt to clients."""
