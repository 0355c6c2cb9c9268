package files

import (
	"strings"
	"unicode/utf8"
)

// A file name is any bytes but NUL and slash; JSON carries Unicode only. Bytes
// that are not UTF-8 travel as the code points U+EF80 to U+EFFF of the private
// use area: byte 0x80+n as U+EF80+n. So that every name has one spelling, the
// bytes of a name that really holds such a code point travel that way too.
const (
	rawFirst = 0xEF80
	rawLast  = 0xEFFF
)

// EncodeName makes any byte string valid UTF-8, reversibly: DecodeName of the
// result is s again. Valid names without U+EF80 to U+EFFF are unchanged;
// newlines and control characters are left to JSON's own escapes.
func EncodeName(s string) string {
	if plain(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 || r >= rawFirst && r <= rawLast {
			for _, c := range []byte(s[i : i+n]) {
				b.WriteRune(rune(rawFirst - 0x80 + int(c)))
			}
		} else {
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}

// DecodeName is the inverse of EncodeName. It accepts any string.
func DecodeName(s string) string {
	if plain(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r >= rawFirst && r <= rawLast {
			b.WriteByte(byte(r - rawFirst + 0x80))
		} else {
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}

// plain reports whether s is valid and holds no code point of the raw range.
func plain(s string) bool {
	for i := 0; i < len(s); {
		if s[i] < utf8.RuneSelf {
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 || r >= rawFirst && r <= rawLast {
			return false
		}
		i += n
	}
	return true
}

// jsonLen is the most bytes that s takes in JSON as encoding/json writes it,
// quotes included. s is valid UTF-8.
func jsonLen(s string) int {
	n := 2
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			n += 2
		case c < 0x20 || c == 0x7f || c == '<' || c == '>' || c == '&':
			n += 6
		case c >= 0x80:
			// U+2028 and U+2029 are escaped: six bytes for their three.
			n += 2
		default:
			n++
		}
	}
	return n
}
