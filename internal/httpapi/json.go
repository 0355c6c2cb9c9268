package httpapi

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

// maxDepth is how deep a body may nest; no body of ours needs more.
const maxDepth = 32

// maxValues is how many values a body may hold: decoded, small values take twenty times
// their text.
const maxValues = 100_000

// strictJSON is huma's JSON format with what the standard decoder lets pass
// refused: a key twice, text that is not UTF-8 or holds half a surrogate pair
// (both would be changed silently), data after the value.
func strictJSON() huma.Format {
	return huma.Format{
		Marshal: func(w io.Writer, v any) error {
			enc := json.NewEncoder(w)
			enc.SetEscapeHTML(false)
			return enc.Encode(v)
		},
		Unmarshal: func(data []byte, v any) error {
			// huma decodes twice: first into an any that it validates, then into
			// the request type. Checking the first is enough.
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

// null is JSON's null. It is not Go's nil, which huma takes for "not there": a
// field is left out or has a value.
type null struct{}

// MarshalJSON implements json.Marshaler.
func (null) MarshalJSON() ([]byte, error) { return []byte("null"), nil }

func decodeStrict(data []byte) (any, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("body is not UTF-8")
	}
	if i := loneSurrogate(data); i >= 0 {
		return nil, fmt.Errorf("half a surrogate pair at offset %d", i)
	}
	dec := decoder{Decoder: json.NewDecoder(bytes.NewReader(data))}
	v, err := dec.value("", 0)
	if err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, errors.New("JSON ends early")
		}
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("there is data after the JSON value, before offset %d", dec.InputOffset())
	}
	return v, nil
}

// long lists the fields whose texts may be as long as a body. Any other text is a name,
// a setting or a choice: too long a one is refused before it is copied into a request
// and quoted in an error.
var long = map[string]bool{"text": true, "stdin": true, "command": true, "argv": true, "input": true}

// maxName is the longest text of any other field, in bytes.
const maxName = maxSmall

// decoder counts the values that it has decoded.
type decoder struct {
	*json.Decoder
	values int
}

func (dec *decoder) value(field string, depth int) (any, error) {
	if dec.values++; dec.values > maxValues {
		return nil, fmt.Errorf("body holds more than %d values", maxValues)
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
		return nil, fmt.Errorf("%s is %d bytes long, and no more than %d are taken", holdfast.Quote(field), len(text), maxName)
	}
	if !ok {
		return tok, nil
	}
	if depth == maxDepth {
		return nil, fmt.Errorf("nested deeper than %d", maxDepth)
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
			return nil, fmt.Errorf("a key is %d bytes long", len(name))
		}
		if _, dup := object[name]; dup {
			return nil, fmt.Errorf("key %s occurs twice", holdfast.Quote(name))
		}
		if object[name], err = dec.value(name, depth+1); err != nil {
			return nil, err
		}
	}
	_, err = dec.Token()
	return object, err
}

// loneSurrogate is the offset of the first \uD800-\uDFFF escape that is not half
// of a pair, or -1. The standard decoder replaces such text without a word.
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

// escapeAt reads a \uXXXX escape.
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
