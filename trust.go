package holdfast

import "slices"

// Trust says where a session's tools run.
type Trust string

// The two levels. Tools of a trusted session can do everything that the server's user can, or in a
// workspace of a root server the owner of the workspace's files; those of an untrusted one run in a sandbox.
const (
	Trusted   Trust = "trusted"
	Untrusted Trust = "untrusted"
)

// ParseTrust accepts the two levels and three older words for them: full means trusted; vault and sandboxed mean untrusted.
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

// Exceeds reports whether t is a higher trust than max. An empty max is the owner's and allows every trust.
func (t Trust) Exceeds(max Trust) bool { return t != Untrusted && max != "" && max != Trusted }

// Mode is a permission mode: it decides tool calls that no rule decided.
type Mode string

// The permission modes, by the names that Claude Code uses.
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

// DefaultMode returns the mode of a session that names none. Untrusted sessions bypass
// questions because their tools run in a box; trusted sessions ask.
func (t Trust) DefaultMode() Mode {
	if t == Trusted {
		return ModeDefault
	}
	return ModeBypassPermissions
}
