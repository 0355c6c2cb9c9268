package files

import (
	"strings"
	"unicode/utf8"
)

// A file name is any bytes but NUL and slash; JSON carries Unicode only. A byte 0x80+n that is
// not part of valid UTF-8 is encoded as the code point U+EF80+n of the private use area (U+EF80
// to U+EFFF). So that every name has exactly one encoding, the bytes of a name that really
// contains such a code point are encoded that way too.
const (
	rawFirst = 0xEF80
	rawLast  = 0xEFFF
)

// EncodeName turns any byte string into valid UTF-8; DecodeName turns the result back into s.
// Valid names without U+EF80 to U+EFFF are unchanged. Newlines and control characters stay: JSON
// escapes them.
func EncodeName(s string) string {
	if plain(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 || raw(r) {
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
		if raw(r) {
			b.WriteByte(byte(r - rawFirst + 0x80))
		} else {
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}

// raw reports whether a code point is one of those that encode a single byte of a name.
func raw(r rune) bool { return r >= rawFirst && r <= rawLast }

// plain reports whether s is valid UTF-8 without code points that encode a single byte.
func plain(s string) bool { return utf8.ValidString(s) && !strings.ContainsFunc(s, raw) }

// jsonLen returns the most bytes that s can take in JSON as encoding/json writes it, with its
// quotes. s must be valid UTF-8.
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
