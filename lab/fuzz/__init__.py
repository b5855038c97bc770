"""The attack on oomcast, as a room of its own: hostile files and options by the hundred thousand.

Valid content of every kind is made when asked for (`seeds`), changed in its own structure (`mutation`), and read as a
user's command would read it (`targets`), in a process that watches time, memory and everything that runs code
(`running`). Each input follows from its number, so that what was found can be made again.
"""
