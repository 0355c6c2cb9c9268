package holdfast

// Trust says where a session's tools run.
type Trust string

// The two levels. Tools of a trusted session can do everything that the server's user can, or in a
// workspace of a root server the owner of the workspace's files; those of an untrusted one run in a sandbox.
const (
	Trusted   Trust = "trusted"
	Untrusted Trust = "untrusted"
)

func (Trust) parse(s string) (string, error) {
	switch s {
	case "trusted", "full":
		return string(Trusted), nil
	case "untrusted", "vault", "sandboxed":
		return string(Untrusted), nil
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

func (Mode) parse(s string) (string, error) {
	return parseWord[Mode]("mode", "a permission mode", s)
}

// DefaultMode returns the mode of a session that names none. Untrusted sessions bypass
// questions because their tools run in a box; trusted sessions ask.
func (t Trust) DefaultMode() Mode {
	if t == Trusted {
		return ModeDefault
	}
	return ModeBypassPermissions
}
