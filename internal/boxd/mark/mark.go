package mark

// sec and nsec are the mark. It is a time in 1970, so other files do not get it from the clock.
const sec, nsec = 1, 481516234

// On reports whether a modification time, in seconds and nanoseconds, is the mark.
func On(s, ns int64) bool { return s == sec && ns == nsec }
