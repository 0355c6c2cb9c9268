package body

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast-run/holdfast"
)

const (
	// maxDepth is how deeply the JSON of a body may be nested; no request of the API needs more.
	maxDepth = 32
	// maxValues is the most JSON values in a body: decoded, a small value takes twenty times the
	// memory of its text.
	maxValues = 100_000
	// maxName is the longest string, in bytes, in a field that the table long does not list.
	maxName = Small
)

// JSON returns a JSON format for huma that refuses bodies which the standard decoder would change
// without an error: those with a key that occurs twice, with text that is not UTF-8 or
// has half a surrogate pair, or with data after the value.
func JSON() huma.Format {
	return huma.Format{
		Marshal: func(w io.Writer, v any) error {
			enc := json.NewEncoder(w)
			enc.SetEscapeHTML(false)
			return enc.Encode(v)
		},
		Unmarshal: func(data []byte, v any) error {
			// huma decodes twice: first into an any, which it validates, then into
			// the request type. It is enough to be strict the first time.
			p, ok := v.(*any)
			if !ok {
				return json.Unmarshal(data, v)
			}
			var err error
			*p, err = decodeStrict(data)
			return err
		},
	}
}

// null represents JSON's null. Go's nil would not do: huma treats it as a field that is left
// out, and so would accept null for any optional field.
type null struct{}

// MarshalJSON implements json.Marshaler.
func (null) MarshalJSON() ([]byte, error) { return []byte("null"), nil }

func decodeStrict(data []byte) (any, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("the body is not UTF-8")
	}
	if i := loneSurrogate(data); i >= 0 {
		return nil, fmt.Errorf("the JSON body has half a surrogate pair at offset %d", i)
	}
	dec := decoder{Decoder: json.NewDecoder(bytes.NewReader(data))}
	v, err := dec.value("", 0)
	if err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, errors.New("the JSON of the body ends early")
		}
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("the body has data after the JSON value, before offset %d", dec.InputOffset())
	}
	return v, nil
}

// long lists the fields whose strings may be as long as a body. Strings of other fields are names,
// settings or choices: one longer than maxName is refused before it is copied into a request
// or quoted in an error.
var long = map[string]bool{"text": true, "stdin": true, "command": true, "argv": true, "input": true}

// decoder decodes one body and counts its values.
type decoder struct {
	*json.Decoder
	values int
}

func (dec *decoder) value(field string, depth int) (any, error) {
	if dec.values++; dec.values > maxValues {
		return nil, fmt.Errorf("the JSON of the body holds more than %d values", maxValues)
	}
	tok, err := dec.Token()
	if err != nil {
		return nil, err
	}
	delim, ok := tok.(json.Delim)
	if tok == nil {
		return null{}, nil
	}
	if text, is := tok.(string); is && len(text) > maxName && !long[field] {
		return nil, fmt.Errorf("the field %s is %d bytes long: the limit is %d", holdfast.Quote(field), len(text), maxName)
	}
	if !ok {
		return tok, nil
	}
	if depth == maxDepth {
		return nil, fmt.Errorf("the JSON of the body is nested deeper than %d levels", maxDepth)
	}
	if delim == '[' {
		list := []any{}
		for dec.More() {
			v, err := dec.value(field, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err = dec.Token()
		return list, err
	}
	object := map[string]any{}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, err
		}
		name, _ := key.(string)
		if len(name) > maxName {
			return nil, fmt.Errorf("a key of the JSON body is %d bytes long: the limit is %d", len(name), maxName)
		}
		if _, dup := object[name]; dup {
			return nil, fmt.Errorf("in the JSON of the body the key %s occurs twice", holdfast.Quote(name))
		}
		if object[name], err = dec.value(name, depth+1); err != nil {
			return nil, err
		}
	}
	_, err = dec.Token()
	return object, err
}

// loneSurrogate returns the offset of the first \uD800-\uDFFF escape that is not part of a pair,
// or -1. The standard decoder would replace such an escape without an error.
func loneSurrogate(data []byte) int {
	for i := 0; i < len(data); i++ {
		j := bytes.IndexByte(data[i:], '\\')
		if j < 0 {
			return -1
		}
		i += j
		r, ok := escapeAt(data, i)
		switch {
		case !ok:
			i++ // skip the escaped character, which may be a backslash
		case r >= 0xD800 && r <= 0xDBFF:
			if low, ok := escapeAt(data, i+6); !ok || low < 0xDC00 || low > 0xDFFF {
				return i
			}
			i += 11
		case r >= 0xDC00 && r <= 0xDFFF:
			return i
		default:
			i += 5
		}
	}
	return -1
}

// escapeAt returns the value of the \uXXXX escape at offset i; false if there is none.
func escapeAt(data []byte, i int) (rune, bool) {
	if i+6 > len(data) || data[i] != '\\' || data[i+1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range data[i+2 : i+6] {
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0, false
		}
	}
	return r, true
}
