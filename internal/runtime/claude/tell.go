package claude

import (
	"context"
	"crypto/sha256"
	"fmt"

	"github.com/holdfast-run/holdfast"
)

// tell hands the CLI what it was not told yet. Messages are in the log, and what they
// are called follows from there: they are sent while their place in the state is
// recorded. A server that comes after one that died between sends them again, and the
// CLI passes over what it has (HZ-12). What is in no log is recorded first.
func (x *run) tell(ctx context.Context) error {
	if x.mem.Parked {
		lines, err := x.setModel()
		if err != nil {
			return err
		}
		x.mem.Parked = false
		x.out = x.say(append(x.out, lines...), 0, goOn)
		if err := x.flush(ctx); err != nil {
			return err
		}
	}
	lines, err := x.prompts()
	if err != nil {
		return err
	}
	if err := x.link.out.Add(lines...); err != nil {
		return err
	}
	return x.flush(ctx)
}

// tellAhead sends a CLI that waits for nothing but the next message that message before
// it is known whether it is there.
func (x *run) tellAhead() (bool, error) {
	if !x.mem.Shaken || x.mem.Parked || x.warming || len(x.mem.Sent) > 0 || x.mem.opens() {
		return false, nil
	}
	lines, err := x.prompts()
	if err != nil {
		return false, err
	}
	return len(lines) > 0, x.link.out.Add(lines...)
}

// prompts are the messages that the CLI was not told yet, as lines, behind its model if
// that is another one now.
func (x *run) prompts() ([][]byte, error) {
	lines, err := x.setModel()
	if err != nil {
		return nil, err
	}
	for _, m := range x.unsent() {
		text := x.t.Folder.Qualify(m.text)
		if len(x.mem.Sent) == 0 && x.plan != nil && x.plan.preface != "" {
			// Behind other text the CLI does not see a command.
			text = x.plan.preface + x.t.Folder.Expand(m.text)
		}
		lines = x.say(lines, m.seq, text)
	}
	return lines, nil
}

// setModel tells the CLI about its model, if it has to be told.
func (x *run) setModel() ([][]byte, error) {
	model, err := modelOf(x.t.Session.Model)
	if err != nil || model == x.mem.Model {
		return nil, err
	}
	x.mem.Model = model
	return [][]byte{control("hf-model", object{"subtype": "set_model", "model": model})}, nil
}

// say adds a prompt to lines that are the next to be sent.
func (x *run) say(lines [][]byte, seq int64, text string) [][]byte {
	at := seq
	if seq == 0 {
		at = int64(-x.mem.Parks)
	}
	id := promptID(x.state.Call, x.t.ID, at)
	x.mem.Sent = append(x.mem.Sent, sent{UUID: id, Seq: seq, At: x.link.out.Next() + size(lines)})
	x.dirty = true
	return append(lines, prompt(id, text))
}

// steer looks for messages that joined the turn.
func (x *run) steer(ctx context.Context) error {
	last := int64(0)
	if n := len(x.messages); n > 0 {
		last = x.messages[n-1].seq
	}
	events, err := x.host.Steered(ctx, last)
	if err != nil {
		return err
	}
	for _, ev := range events {
		var m holdfast.UserMessage
		if err := ev.Decode(&m); err != nil {
			return err
		}
		x.messages = append(x.messages, said{ev.Seq, m.Text()})
		x.seq = max(x.seq, ev.Seq)
	}
	return nil
}

// promptID names a message to the process of a call: the same whoever tells it, so that
// the CLI knows it again, and another one for another process, whose transcript may
// hold the message of a former one. At is the message's place in the log; a reminder has
// none, it counts down.
func promptID(call holdfast.CallID, turn holdfast.TurnID, at int64) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %d", call, turn, at))
	b := sum[:16]
	b[6], b[8] = b[6]&0x0f|0x80, b[8]&0x3f|0x80 // a UUID of version 8
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
