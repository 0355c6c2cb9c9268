package conversation

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast"
)

// The functions of this file decode the payloads that make up nearly all of a long log, several
// times faster than encoding/json, which would take most of a server's start. They decode JSON as
// the journal writes it: valid, with keys as in the payload types. For anything else they return
// false, and the caller uses encoding/json.

// object calls field with each key and undecoded value of a JSON object. It returns false if the
// data is not such an object or field returns false.
func object(data []byte, field func(key string, value []byte) bool) bool {
	return list(data, '{', '}', func(rest []byte) (int, bool) {
		k := value(rest)
		if k < 2 || rest[0] != '"' || k >= len(rest) || rest[k] != ':' || bytes.IndexByte(rest[:k], '\\') >= 0 {
			return 0, false
		}
		v := value(rest[k+1:])
		return k + 1 + v, v > 0 && field(string(rest[1:k-1]), rest[k+1:k+1+v])
	})
}

// array calls item with each undecoded value of a JSON array. It returns false if the data is not
// such an array or item returns false.
func array(data []byte, item func(value []byte) bool) bool {
	return list(data, '[', ']', func(rest []byte) (int, bool) {
		v := value(rest)
		return v, v > 0 && item(rest[:v])
	})
}

// list reads the elements of a JSON object or array between the brackets open and end. For each it calls one,
// which reads the element at the beginning of rest and returns its length.
func list(data []byte, open, end byte, one func(rest []byte) (int, bool)) bool {
	if len(data) < 2 || data[0] != open {
		return false
	}
	if data[1] == end {
		return len(data) == 2
	}
	for at := 1; at < len(data); {
		n, ok := one(data[at:])
		if at += n; !ok || at >= len(data) || n == 0 {
			return false
		}
		switch data[at] {
		case end:
			return at == len(data)-1
		case ',':
			at++
		default:
			return false
		}
	}
	return false
}

// value returns the length of the JSON value at the beginning of b; 0 if b begins with none.
func value(b []byte) int {
	if len(b) == 0 {
		return 0
	}
	switch b[0] {
	case '"':
		return quoted(b)
	case '{', '[':
		depth := 0
		for i := 0; i < len(b); i++ {
			switch b[i] {
			case '"':
				n := quoted(b[i:])
				if n == 0 {
					return 0
				}
				i += n - 1
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
		}
		return 0
	}
	n := bytes.IndexAny(b, ",}] \t\r\n:")
	if n < 0 {
		return len(b)
	}
	return n
}

// quoted returns the length of the JSON string at the beginning of b; 0 if it has no end.
func quoted(b []byte) int {
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return 0
}

// text decodes a JSON string into to.
func text(v []byte, to *string) bool {
	if len(v) < 2 || v[0] != '"' {
		return false
	}
	s := v[1 : len(v)-1]
	if !utf8.Valid(s) {
		return json.Unmarshal(v, to) == nil
	}
	if bytes.IndexByte(s, '\\') < 0 {
		*to = string(s)
		return true
	}
	var out strings.Builder
	out.Grow(len(s))
	for {
		n := bytes.IndexByte(s, '\\')
		if n < 0 || n+1 >= len(s) {
			out.Write(s)
			*to = out.String()
			return n < 0
		}
		c := strings.IndexByte(`ntr"\/bf`, s[n+1])
		if c < 0 { // an escape \u, perhaps half of a surrogate pair
			return json.Unmarshal(v, to) == nil
		}
		out.Write(s[:n])
		out.WriteByte("\n\t\r\"\\/\b\f"[c])
		s = s[n+2:]
	}
}

// scanAnswer decodes the payload of message.assistant.
func scanAnswer(data []byte, m *holdfast.AssistantMessage) bool {
	return object(data, func(key string, v []byte) bool {
		switch key {
		case "parts":
			m.Parts = make([]holdfast.Part, 0, 2)
			return array(v, func(v []byte) bool {
				m.Parts = append(m.Parts, holdfast.Part{})
				return scanPart(v, &m.Parts[len(m.Parts)-1])
			})
		case "seen":
			return number(v, &m.Seen)
		case "stop_reason":
			return word(v, &m.StopReason)
		case "model":
			return word(v, &m.Model)
		case "usage":
			return scanUsage(v, &m.Usage)
		}
		return true
	})
}

func scanPart(data []byte, p *holdfast.Part) bool {
	return object(data, func(key string, v []byte) bool {
		switch key {
		case "type":
			var typ string
			ok := word(v, &typ)
			p.Type = holdfast.PartType(typ)
			return ok
		case "text":
			return text(v, &p.Text)
		case "tool_use_id":
			return text(v, &p.ToolUseID)
		}
		return true
	})
}

func scanUsage(data []byte, u *holdfast.Usage) bool {
	return object(data, func(key string, v []byte) bool {
		switch key {
		case "input_tokens":
			return number(v, &u.InputTokens)
		case "output_tokens":
			return number(v, &u.OutputTokens)
		}
		return json.Unmarshal(data, u) == nil // encoding/json decodes a usage with other fields, which is rare
	})
}

// scanRequest decodes the payload of tool.requested.
func scanRequest(data []byte, r *holdfast.ToolRequested) bool {
	return object(data, func(key string, v []byte) bool {
		switch key {
		case "tool_use_id":
			return text(v, &r.ToolUseID)
		case "name":
			return word(v, &r.Name)
		case "input":
			r.Input = bytes.Clone(v)
		}
		return true
	})
}

// scanFinished decodes the fields of tool.finished that a conversation uses.
func scanFinished(data []byte, o *Outcome) bool {
	return object(data, func(key string, v []byte) bool {
		switch key {
		case "tool_use_id":
			return text(v, &o.ToolUseID)
		case "content":
			return text(v, &o.Text)
		case "is_error":
			o.IsError = string(v) == "true"
			return o.IsError || string(v) == "false"
		}
		return true
	})
}

// word decodes a JSON string that usually has one of a few known values. For these it does not allocate a new string.
func word(v []byte, to *string) bool {
	switch string(v) {
	case `"text"`:
		*to = "text"
	case `"tool_use"`:
		*to = "tool_use"
	case `"end_turn"`:
		*to = "end_turn"
	case `"Bash"`:
		*to = "Bash"
	case `"Read"`:
		*to = "Read"
	case `"Edit"`:
		*to = "Edit"
	default:
		return text(v, to)
	}
	return true
}

func number(v []byte, to *int64) bool {
	if len(v) == 0 || len(v) > 18 {
		return false
	}
	n := int64(0)
	for _, c := range v {
		if c < '0' || c > '9' {
			return false
		}
		n = n*10 + int64(c-'0')
	}
	*to = n
	return len(v) == 1 || v[0] != '0'
}
