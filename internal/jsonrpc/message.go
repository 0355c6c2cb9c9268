package jsonrpc

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// The error codes that all users of this package share. The protocols that use JSON-RPC have further ones.
const (
	ParseError     = -32700
	InvalidRequest = -32600
	MethodNotFound = -32601
	InvalidParams  = -32602
	InternalError  = -32603
	Busy           = -32005
	Cancelled      = -32800
)

// Error is the error with which a request is answered.
type Error struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// errorf makes an Error.
func errorf(code int, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// MaxID is the most bytes of an id, because ids are stored.
const MaxID = 256

// ID is the id of a request, as the JSON of a string or a number. It is "" in a notification.
type ID string

// Number returns a number as an ID.
func Number(n int64) ID { return ID(strconv.FormatInt(n, 10)) }

// MarshalJSON implements json.Marshaler.
func (id ID) MarshalJSON() ([]byte, error) {
	return []byte(cmp.Or(id, null)), nil
}

// UnmarshalJSON implements json.Unmarshaler. It accepts strings, numbers and null, which is not an id.
func (id *ID) UnmarshalJSON(b []byte) error {
	switch c := b[0]; {
	case ID(b) == null:
		*id = ""
	case c != '"' && c != '-' && (c < '0' || c > '9'):
		return errors.New("the id of a message must be a string or a number")
	case len(b) > MaxID:
		return fmt.Errorf("a message id of %d bytes is longer than the allowed %d", len(b), MaxID)
	default:
		*id = ID(b)
	}
	return nil
}

// Message is a request (with ID and Method), a notification (with Method only), or the answer to
// a request (with ID, and Result or Error).
type Message struct {
	Version string          `json:"jsonrpc"`
	ID      ID              `json:"id,omitzero"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *Error          `json:"error,omitempty"`
}

// Parse decodes a line. Its error is an *Error for the sender. It accepts an answer without a
// result and an error without an id.
func Parse(line []byte) (Message, error) {
	var m Message
	err := json.Unmarshal(line, &m)
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		return Message{}, errorf(ParseError, "the line is not JSON")
	case err != nil, m.Version != "" && m.Version != version, m.Method == "" && m.ID == "" && m.Error == nil:
		return Message{}, errorf(InvalidRequest, "the line is not a JSON-RPC message")
	}
	return m, nil
}

const (
	version = "2.0"
	// null is the id in the answer to a line that has no id or whose id could not be read.
	null ID = "null"
)

// Encode returns the message as a line with its end. Its parts must be valid JSON. The id stays as
// it was received, byte for byte: the other side may compare texts.
func (m Message) Encode() []byte {
	m.Version = version
	if m.Method == "" && m.ID == "" {
		m.ID = null
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(m) != nil {
		return nil
	}
	return b.Bytes()
}

// Answers reports whether the message is the answer to the request with an id.
func (m *Message) Answers(id ID) bool { return m.Method == "" && m.ID == id }

// bounded returns an error if valid JSON has too many values or too deep a nesting. Whoever
// decodes a message stores each value separately, which for small values takes twenty times the
// memory of their text.
func bounded(line []byte) *Error {
	values, depth, inText := 1, 0, false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case inText && c == '\\':
			i++
		case c == '"':
			inText = !inText
		case inText:
		case c == ',':
			values++
		case c == '[' || c == '{':
			values++
			if depth++; depth > MaxDepth {
				return errorf(InvalidRequest, "the message nests its values more than %d deep", MaxDepth)
			}
		case c == ']' || c == '}':
			depth--
		}
	}
	if values > MaxValues {
		return errorf(InvalidRequest, "the message has more than %d JSON values", MaxValues)
	}
	return nil
}
