"""What others have published, in files of their own formats, read into frames."""
