package hooked

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/hook"
)

// nameOf returns the call id of a hook run. It is a hash of the turn, the subject of the run and
// the hook, so it is the same after a restart. Its UUID version differs from that of tool calls.
func nameOf(turn holdfast.TurnID, whose string, in hook.Input, h *hook.Hook) holdfast.CallID {
	about := in.ToolUseID
	switch in.Event {
	case hook.PreToolUse, hook.PermissionRequest, hook.PermissionDenied:
		// An agent may ask several times about one tool call, with other tools and inputs: each has a run of its own.
		about += " " + in.ToolName + " " + string(sameForm(in.ToolInput))
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %q %q %d %q", turn, in.Key, in.Event, about, in.FilePath, whose, h.Order(), h.Name()))
	mark := turnMark(turn)
	id := append(mark[:6:6], sum[:10]...)
	id[6] = id[6]&0x0f | 0x80
	id[8] = id[8]&0x3f | 0x80
	s := hex.EncodeToString(id)
	return holdfast.CallID(s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:])
}

// sameForm returns an input in a form that does not depend on blanks, escapes and the order of keys: the log may have it
// with others than the message of the agent.
func sameForm(input json.RawMessage) json.RawMessage {
	var v any
	d := json.NewDecoder(bytes.NewReader(input))
	d.UseNumber()
	if d.Decode(&v) != nil || d.More() {
		return input
	}
	out, err := json.Marshal(v)
	if err != nil {
		return input
	}
	return out
}

func turnMark(turn holdfast.TurnID) [32]byte { return sha256.Sum256([]byte("turn " + turn)) }

// RunOf reports whether a call is a hook's run in a turn.
func RunOf(call holdfast.CallID, turn holdfast.TurnID) bool {
	if len(call) != 36 || call[14] != '8' || turn == "" {
		return false
	}
	mark := turnMark(turn)
	s := hex.EncodeToString(mark[:6])
	return string(call[:13]) == s[:8]+"-"+s[8:]
}
