package files

import (
	"strings"
	"unicode/utf8"
)

// A file name can contain any bytes except NUL and slash, but JSON can contain only Unicode. A byte
// 0x80+n that is not part of valid UTF-8 is encoded as the code point U+EF80+n of the private use
// area (U+EF80 to U+EFFF). If a name really contains one of these code points, each of the code
// point's bytes is encoded in this way, so that no two names have the same encoding.
const (
	rawFirst = 0xEF80
	rawLast  = 0xEFFF
)

// EncodeName encodes any string of bytes as valid UTF-8, from which DecodeName makes the same
// string again. It returns valid UTF-8 without the code points U+EF80 to U+EFFF unchanged. It does
// not encode newlines and control characters, because JSON escapes them.
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

// DecodeName returns the string of bytes that EncodeName encoded as s. It accepts any string.
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

// raw reports whether EncodeName uses a code point to encode a single byte.
func raw(r rune) bool { return r >= rawFirst && r <= rawLast }

// plain reports whether EncodeName and DecodeName leave s unchanged: s is valid UTF-8 without U+EF80 to U+EFFF.
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
			// JSON escapes U+2028 and U+2029: each becomes six bytes instead of three.
			n += 2
		default:
			n++
		}
	}
	return n
}
