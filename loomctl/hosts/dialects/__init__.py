"""What hosts other than the protocol's own say differently: events in, answers out, conversations read; a file each.

A module bears its host's name. Each has `read(word, event)`, which gives an event in the protocol's shape,
`write(answer)`, which gives an `asking.Answer` as the host takes it, and `Transcript(path)`, a `written.Written` of
what the host writes down. It may have, too:

`stops()`: how many stops in a row may be blocked, where a user may set that; else `asking.STOPS` may.
`for_the_summary(text)`: what the summariser is to be told, as the host takes it; else the text itself is printed.
"""
