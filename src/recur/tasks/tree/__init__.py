"""Trees whose nodes have classes, such as the sentiment of every phrase of a sentence."""
