"""What a broker leaves for later where cores are short, so that its event loop has one when it is needed.

A loop that always has something to do always waits for a core, and so does everybody who asks it for
something. Work that can wait is done in small pieces with pauses between them: what is urgent finds the loop
asleep then, and the system gives a core to a thread that was asleep before others have it again.
"""
