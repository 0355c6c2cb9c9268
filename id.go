package holdfast

import (
	"encoding/hex"
	"io"
	"time"
)

// SessionID names a session: a UUID in canonical lower-case form. The server makes
// version 7; the id that a caller chooses may have any version.
type SessionID string

// TurnID names a turn: a UUIDv7.
type TurnID string

// CallID names one call into a box that changes something, or one run of a hook: a UUIDv7 that the
// server makes. The id of a tool call is in the log before the call is issued.
type CallID string

// AgentName names a deployed agent: 1-64 of [a-z0-9._-], starting and ending
// with a letter or digit, without "..".
type AgentName string

// ChildID names a child agent within its session: 1-64 of [A-Za-z0-9_-]. The program
// that starts the child agent, such as an agent CLI, chooses the id.
type ChildID string

// VersionID names an immutable agent version: "sha256:" and 64 lower-case hex digits.
type VersionID string

// Slug names a workspace: 1-63 of [a-z0-9-], starting and ending with a letter
// or digit (WS-R1, WS-D14).
type Slug string

// BoxID names a box: that of one session ("s-<session id>"), that of the sessions of a workspace ("w-<slug>"), or that
// of the sessions of a workspace that mount the server's own tree ("t-<slug>"). The id stays the same when the box
// restarts. It is unique within one data directory.
type BoxID string

// ApprovalID names a question to a person: a UUIDv7.
type ApprovalID string

func (ApprovalID) parse(s string) (string, error) { return parseUUID("approval id", s) }

func (SessionID) parse(s string) (string, error) { return parseUUID("session id", s) }

func (TurnID) parse(s string) (string, error) { return parseUUID("turn id", s) }

func (CallID) parse(s string) (string, error) { return parseUUID("call id", s) }

func (AgentName) parse(s string) (string, error) {
	ok := len(s) >= 1 && len(s) <= 64
	for i := 0; ok && i < len(s); i++ {
		switch c := s[i]; {
		case lowerAlnum(c):
		case c == '-' || c == '_' || c == '.':
			ok = i > 0 && i < len(s)-1 && !(c == '.' && s[i-1] == '.')
		default:
			ok = false
		}
	}
	if !ok {
		return "", Errorf(KindInvalid, "agent name", "%s is not an agent name", Quote(s)).
			WithHint("use 1-64 characters of a-z 0-9 . _ -, starting and ending with a letter or digit")
	}
	return s, nil
}

func (ChildID) parse(s string) (string, error) {
	ok := len(s) >= 1 && len(s) <= 64
	for i := 0; ok && i < len(s); i++ {
		c := s[i]
		ok = lowerAlnum(c) || c >= 'A' && c <= 'Z' || c == '-' || c == '_'
	}
	if !ok {
		return "", Errorf(KindInvalid, "child agent", "%s is not the id of a child agent", Quote(s)).
			WithHint("use 1-64 characters of A-Z a-z 0-9 _ -")
	}
	return s, nil
}

func (VersionID) parse(s string) (string, error) {
	const prefix = "sha256:"
	if len(s) == len(prefix)+64 && s[:len(prefix)] == prefix {
		ok := true
		for i := len(prefix); i < len(s); i++ {
			ok = ok && (s[i] >= '0' && s[i] <= '9' || s[i] >= 'a' && s[i] <= 'f')
		}
		if ok {
			return s, nil
		}
	}
	return "", Errorf(KindInvalid, "version id", "%s is not the id of an agent version", Quote(s)).
		WithHint("list the versions of an agent with: holdfast agent show NAME")
}

func (Slug) parse(s string) (string, error) {
	ok := len(s) >= 1 && len(s) <= 63
	for i := 0; ok && i < len(s); i++ {
		ok = lowerAlnum(s[i]) || s[i] == '-' && i > 0 && i < len(s)-1
	}
	if !ok {
		return "", Errorf(KindInvalid, "workspace", "%s is not a workspace slug", Quote(s)).
			WithHint("use 1-63 characters of a-z 0-9 -, starting and ending with a letter or digit")
	}
	return s, nil
}

func (BoxID) parse(s string) (string, error) {
	if len(s) > 2 && s[1] == '-' {
		switch s[0] {
		case 's':
			if id, err := Parse[SessionID](s[2:]); err == nil && string(id) == s[2:] {
				return s, nil
			}
		case 'w', 't':
			if _, err := Parse[Slug](s[2:]); err == nil {
				return s, nil
			}
		}
	}
	return "", Errorf(KindInvalid, "box id", "%s is not a box id", Quote(s)).
		WithHint("list the boxes with: holdfast containers list")
}

// Box returns the id of the box that belongs to the session alone.
func (id SessionID) Box() BoxID { return BoxID("s-" + string(id)) }

// NewUUID returns a version 7 UUID: the time in milliseconds, then random bits from r.
func NewUUID(now time.Time, r io.Reader) (string, error) {
	var b [16]byte
	if _, err := io.ReadFull(r, b[6:]); err != nil {
		return "", Errorf(KindInternal, "id", "cannot read random bytes for a new id: %w", err)
	}
	ms := now.UnixMilli()
	for i := range 6 {
		b[i] = byte(ms >> (40 - 8*i))
	}
	b[6] = b[6]&0x0f | 0x70
	b[8] = b[8]&0x3f | 0x80
	var out [36]byte
	hex.Encode(out[0:8], b[0:4])
	hex.Encode(out[9:13], b[4:6])
	hex.Encode(out[14:18], b[6:8])
	hex.Encode(out[19:23], b[8:10])
	hex.Encode(out[24:36], b[10:16])
	out[8], out[13], out[18], out[23] = '-', '-', '-', '-'
	return string(out[:]), nil
}

func lowerAlnum(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' }

func parseUUID(what, s string) (string, error) {
	if len(s) == 36 {
		b := []byte(s)
		ok := true
		for i, c := range b {
			switch {
			case i == 8 || i == 13 || i == 18 || i == 23:
				ok = ok && c == '-'
			case c >= '0' && c <= '9' || c >= 'a' && c <= 'f':
			case c >= 'A' && c <= 'F':
				b[i] = c + 'a' - 'A'
			default:
				ok = false
			}
		}
		if ok {
			return string(b), nil
		}
	}
	return "", Errorf(KindInvalid, what, "%s is not a UUID", Quote(s)).
		WithHint("a %s is a UUID such as 01890a5d-ac96-774b-bcce-b302099a8057", what)
}
