"""`proximity check`: what a start would meet, looked at beforehand. Nothing is changed."""
