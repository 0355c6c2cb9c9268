package holdfast

import "slices"

// Trust says where a session's tools run.
type Trust string

// The two levels. Trusted means: everything the server's user can do.
const (
	Trusted   Trust = "trusted"
	Untrusted Trust = "untrusted"
)

// ParseTrust accepts the two levels and, on read, the legacy words of the
// source documents: full is trusted; vault and sandboxed are untrusted.
func ParseTrust(s string) (Trust, error) {
	switch s {
	case "trusted", "full":
		return Trusted, nil
	case "untrusted", "vault", "sandboxed":
		return Untrusted, nil
	}
	return "", Errorf(KindInvalid, "trust", "%s is not a trust level", Quote(s)).
		WithHint("use trusted or untrusted")
}

// Exceeds reports whether t is more than max allows. An empty max allows
// everything: it is the owner's.
func (t Trust) Exceeds(max Trust) bool { return t != Untrusted && max != "" && max != Trusted }

// Mode is a permission mode: what happens to a tool call that no rule decided.
type Mode string

// The permission modes of the source documents. Until policies arrive the
// engine honours them by tool name.
const (
	ModeDefault           Mode = "default"
	ModeAcceptEdits       Mode = "acceptEdits"
	ModeBypassPermissions Mode = "bypassPermissions"
	ModePlan              Mode = "plan"
	ModeDontAsk           Mode = "dontAsk"
	ModeAuto              Mode = "auto"
)

// ParseMode accepts one of the six modes.
func ParseMode(s string) (Mode, error) {
	if slices.Contains(Words[Mode](), Mode(s)) {
		return Mode(s), nil
	}
	return "", Errorf(KindInvalid, "mode", "%s is not a permission mode", Quote(s)).
		WithHint("use default, acceptEdits, bypassPermissions, plan, dontAsk or auto")
}

// DefaultMode is the mode of a session that names none: boxed sessions need no
// questions, host sessions do.
func (t Trust) DefaultMode() Mode {
	if t == Trusted {
		return ModeDefault
	}
	return ModeBypassPermissions
}
