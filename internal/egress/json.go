package egress

import (
	"bytes"
	"encoding/json"

	"github.com/holdfast-run/holdfast"
)

// value is a part of a valid JSON document. It is read in place, so that the request is sent to the
// provider unchanged, byte for byte, and the provider's prompt cache still matches.
type value []byte

// parseJSON returns the value of a document; invalid unless it is exactly one JSON value.
func parseJSON(raw []byte) (value, error) {
	if !valid(raw) {
		return nil, refused("the body of the model request is not valid JSON")
	}
	return trim(raw), nil
}

func trim(raw []byte) value { return value(bytes.Trim(raw, " \t\r\n")) }

func (v value) isObject() bool { return len(v) > 0 && v[0] == '{' }
func (v value) isArray() bool  { return len(v) > 0 && v[0] == '[' }
func (v value) isString() bool { return len(v) > 0 && v[0] == '"' }
func (v value) isNull() bool   { return string(v) == "null" }

// text returns the text of a JSON string; false if v is not a string.
func (v value) text() (string, bool) {
	if !v.isString() {
		return "", false
	}
	var s string
	err := json.Unmarshal(v, &s)
	return s, err == nil
}

// maxTokens is the longest answer, in tokens, that a request may ask for: longer than any model's
// answers, and short enough to compute its price without overflow.
const maxTokens = 1 << 24

// tokens returns v as a number of tokens; invalid unless it is a whole number from 0 to maxTokens.
func (v value) tokens(where string) (int64, error) {
	var n int64
	if err := json.Unmarshal(v, &n); err != nil || n < 0 || n > maxTokens || v.isNull() {
		return 0, holdfast.Errorf(holdfast.KindInvalid, "broker", "the request field %s is %s, which is not a number of tokens from 0 to %d", where, holdfast.Quote(string(v)), maxTokens).
			WithHint("ask for a shorter answer, such as %s: 16384", where)
	}
	return n, nil
}

// members returns the fields of a JSON object. It refuses an object that has a name twice, because
// the provider might read the other value than the one checked here. where names the object in
// errors.
func (v value) members(where string) (map[string]value, error) {
	if !v.isObject() {
		return nil, refused("%s is not a JSON object", where)
	}
	out := map[string]value{}
	rest := v[1:]
	for {
		rest = trim(rest)
		if rest[0] == '}' {
			return out, nil
		}
		if rest[0] == ',' {
			rest = trim(rest[1:])
		}
		var key value
		key, rest = rest.cut()
		name, _ := key.text()
		rest = trim(rest)[1:] // skip the colon after the name
		var member value
		member, rest = trim(rest).cut()
		if _, twice := out[name]; twice {
			return nil, refused("%s has the field %s twice", where, holdfast.Quote(name))
		}
		out[name] = member
	}
}

// elements returns the elements of a JSON array. where names the array in errors.
func (v value) elements(where string) ([]value, error) {
	if !v.isArray() {
		return nil, refused("%s is not a JSON array", where)
	}
	var out []value
	rest := v[1:]
	for {
		rest = trim(rest)
		if rest[0] == ']' {
			return out, nil
		}
		if rest[0] == ',' {
			rest = trim(rest[1:])
		}
		var e value
		e, rest = rest.cut()
		out = append(out, e)
	}
}

// objects calls each for every element of an array of objects. where names the array in errors; each gets the
// name of the element and its fields.
func (v value) objects(where string, each func(where string, m map[string]value) error) error {
	list, err := v.elements(where)
	if err != nil {
		return err
	}
	for i, e := range list {
		m, err := e.members(at(where, i))
		if err != nil {
			return err
		}
		if err := each(at(where, i), m); err != nil {
			return err
		}
	}
	return nil
}

// cut splits v into the JSON value at its beginning and the bytes after it.
func (v value) cut() (head, rest value) {
	depth := 0
	for i := 0; i < len(v); i++ {
		switch v[i] {
		case '"':
			i += v[i:].quoted() - 1
			if depth == 0 {
				return v[:i+1], v[i+1:]
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return v[:i], v[i:]
			}
			if depth--; depth == 0 {
				return v[:i+1], v[i+1:]
			}
		case ',', ':', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return v[:i], v[i:]
			}
		}
	}
	return v, nil
}

// quoted returns the length of the JSON string at the beginning of v, with its quotes.
func (v value) quoted() int {
	for i := 1; ; i++ {
		i += bytes.IndexByte(v[i:], '"')
		escapes := 0
		for v[i-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return i + 1
		}
	}
}

func refused(format string, args ...any) error {
	return holdfast.Errorf(holdfast.KindInvalid, "broker", format, args...)
}
