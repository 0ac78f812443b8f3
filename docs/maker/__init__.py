"""What makes the site: pages in two languages, their blocks executed, their sources linked, everything checked.

languages   the pages, and which of them fell behind in the other language
blocks      the fenced blocks of a page, and how a test shortens them
executing   runs a page's blocks, keeps what they print and draw
sources     links to a file of the repository become a listing with lines
hooks       what mkdocs asks while it builds
build       both languages into build/site, then every link and anchor of what was written
"""
