"""How the image is stored: the text of each kind of value, and its versions."""
