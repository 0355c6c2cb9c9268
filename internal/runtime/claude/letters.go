package claude

import (
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/folder"
	"github.com/holdfast-run/holdfast/internal/runtime/resident"
)

// sent is a message of the turn that was sent to the CLI.
type sent struct {
	UUID string `json:"uuid"`
	// Seq is the event number of the message; 0 for a reminder, which the runtime itself makes.
	Seq int64 `json:"seq,omitempty"`
	// Begun is true once the CLI works on the message, Done once a result covers it.
	Begun bool `json:"begun,omitempty"`
	Done  bool `json:"done,omitempty"`
	// ahead is true if it was not known, when the message was sent, whether the CLI still runs, until that is known.
	ahead bool
}

// letters are the turn's messages on their way to the CLI. Their ids are derived from the log,
// so a message can be sent before the commit that records it as sent: if the server dies in
// between, the next one sends it again, and the CLI skips a message that it has (HZ-12).
type letters struct {
	turn    holdfast.TurnID
	account *resident.Account
	out     *resident.Outbox
	folder  *folder.Folder
	list    []sent
}

// unsent returns the turn's messages that were not sent to the CLI yet.
func (l *letters) unsent() []resident.Message {
	return l.account.Without(func(seq int64) bool {
		return slices.ContainsFunc(l.list, func(s sent) bool { return s.Seq == seq })
	})
}

// send adds a message to the outbox. at identifies it within the turn: its event number, or a
// negative number for a reminder.
func (l *letters) send(call holdfast.CallID, seq, at int64, text string) {
	id := promptID(call, l.turn, at)
	l.list = append(l.list, sent{UUID: id, Seq: seq})
	l.out.Add(prompt(id, text), id)
}

// again queues a message once more that was sent, but that the CLI never received.
func (l *letters) again(uuid string) {
	i := slices.IndexFunc(l.list, func(s sent) bool { return s.UUID == uuid && !s.Begun && !s.Done })
	if i < 0 {
		return
	}
	if text, ok := l.text(l.list[i].Seq); ok {
		l.out.Add(prompt(uuid, text), uuid)
	}
}

// text returns the text of a message as it is sent; ok is false if the turn has no such message.
func (l *letters) text(seq int64) (string, bool) {
	if seq == 0 {
		return goOn, true
	}
	for _, m := range l.account.Messages {
		if m.Seq == seq {
			return l.folder.Qualify(m.Text), true
		}
	}
	return "", false
}

// sentAhead marks all messages as sent before it was known whether the CLI still runs.
func (l *letters) sentAhead() {
	for i := range l.list {
		l.list[i].ahead = true
	}
}

// forgetAhead removes the messages that were sent ahead to an attachment that never began, and
// reports whether there were any.
func (l *letters) forgetAhead() bool {
	n := len(l.list)
	l.list = slices.DeleteFunc(l.list, func(s sent) bool { return s.ahead })
	return len(l.list) < n
}

// arrived records that the CLI runs and receives messages sent before; it reports whether any was sent ahead.
func (l *letters) arrived() (ahead bool) {
	for i := range l.list {
		ahead = ahead || l.list[i].ahead
		l.list[i].ahead = false
	}
	return ahead
}

// begins records that the CLI works on a message.
func (l *letters) begins(uuid string) {
	for i := range l.list {
		if s := &l.list[i]; s.UUID == uuid {
			s.Begun = true
		}
	}
}

// cover records that a result covers the messages uuids. If uuids is empty, it covers those that the CLI works on, or
// every message if all is true. It reports whether one of the covered messages had no result before.
func (l *letters) cover(uuids []string, all bool) (mine bool) {
	for i := range l.list {
		s := &l.list[i]
		if slices.Contains(uuids, s.UUID) || len(uuids) == 0 && (s.Begun || all) {
			mine = mine || !s.Done
			s.Begun, s.Done = true, true
		}
	}
	return mine
}

// done marks all messages as answered.
func (l *letters) done() {
	for i := range l.list {
		l.list[i].Done = true
	}
}

// open reports whether the CLI has received a message that no result covers.
func (l *letters) open() bool {
	return slices.ContainsFunc(l.list, func(s sent) bool { return !s.Done && !s.ahead })
}

// begun reports whether the CLI has started to work on any message of the turn.
func (l *letters) begun() bool {
	return slices.ContainsFunc(l.list, func(s sent) bool { return s.Begun || s.Done })
}

// seen returns the event numbers of the newest user message that the CLI works on, and of the
// last one that was sent to it.
func (l *letters) seen() (seen, last int64) {
	for _, s := range l.list {
		if last = max(last, s.Seq); s.Begun || s.Done {
			seen = max(seen, s.Seq)
		}
	}
	return seen, last
}

// promptID returns a message's id for the process of a call. Every server derives the same id,
// so that the CLI recognizes the message; another process gets another id, because its
// transcript may hold the message from an earlier process.
func promptID(call holdfast.CallID, turn holdfast.TurnID, at int64) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %d", call, turn, at))
	b := sum[:16]
	b[6], b[8] = b[6]&0x0f|0x80, b[8]&0x3f|0x80 // make b a UUID of version 8
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
