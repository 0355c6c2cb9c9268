package egress

import "bytes"

// deepest is how many levels deep JSON values may be nested, the same limit as in encoding/json.
const deepest = 10_000

// valid reports whether raw is one valid JSON value, like json.Valid but several times faster: the
// whole conversation is checked before each answer of a model.
func valid(raw []byte) bool {
	i := skipValue(raw, skipSpace(raw, 0), 0)
	return i >= 0 && skipSpace(raw, i) == len(raw)
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}
	return i
}

// skipValue returns the offset after the JSON value at i, or -1 if no valid value is there. The
// functions skipString, skipWord and skipNumber do the same for one kind of value.
func skipValue(b []byte, i, depth int) int {
	if i < 0 || i >= len(b) {
		return -1
	}
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
		if depth == deepest {
			return -1
		}
		return skipList(b, i, depth+1)
	case 't':
		return skipWord(b, i, "true")
	case 'f':
		return skipWord(b, i, "false")
	case 'n':
		return skipWord(b, i, "null")
	}
	return skipNumber(b, i)
}

func skipWord(b []byte, i int, word string) int {
	if len(b)-i < len(word) || string(b[i:i+len(word)]) != word {
		return -1
	}
	return i + len(word)
}

// skipList returns the offset after the object or array at i, or -1.
func skipList(b []byte, i, depth int) int {
	object, last := b[i] == '{', b[i]+2 // last is the closing bracket: '[' + 2 is ']', '{' + 2 is '}'
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == last {
		return i + 1
	}
	for {
		if object {
			if i >= len(b) || b[i] != '"' {
				return -1
			}
			if i = skipString(b, i); i < 0 {
				return -1
			}
			if i = skipSpace(b, i); i >= len(b) || b[i] != ':' {
				return -1
			}
			i = skipSpace(b, i+1)
		}
		if i = skipValue(b, i, depth); i < 0 {
			return -1
		}
		switch i = skipSpace(b, i); {
		case i >= len(b):
			return -1
		case b[i] == last:
			return i + 1
		case b[i] != ',':
			return -1
		}
		i = skipSpace(b, i+1)
	}
}

func skipString(b []byte, i int) int {
	for i++; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			return i + 1
		case c < ' ':
			return -1
		case c != '\\':
		default:
			if i++; i >= len(b) {
				return -1
			}
			if b[i] != 'u' {
				if bytes.IndexByte([]byte(`"\/bfnrt`), b[i]) < 0 {
					return -1
				}
				continue
			}
			for range 4 {
				if i++; i >= len(b) || !isHex(b[i]) {
					return -1
				}
			}
		}
	}
	return -1
}

func isHex(c byte) bool { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f' }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func skipNumber(b []byte, i int) int {
	if b[i] == '-' {
		i++
	}
	if i < len(b) && b[i] == '0' {
		i++
	} else if i = skipDigits(b, i); i < 0 {
		return -1
	}
	if i < len(b) && b[i] == '.' {
		if i = skipDigits(b, i+1); i < 0 {
			return -1
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		return skipDigits(b, i)
	}
	return i
}

// skipDigits returns the offset after the digits at i, or -1 if there is none.
func skipDigits(b []byte, i int) int {
	from := i
	for i < len(b) && isDigit(b[i]) {
		i++
	}
	if i == from {
		return -1
	}
	return i
}
