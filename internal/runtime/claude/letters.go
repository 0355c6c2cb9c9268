package claude

import (
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/folder"
	"github.com/holdfast-run/holdfast/internal/runtime/resident"
)

// sent is a message of the turn that was handed to the CLI.
type sent struct {
	UUID string `json:"uuid"`
	// Seq is its log entry; 0 is a reminder of the runtime's own.
	Seq int64 `json:"seq,omitempty"`
	// Begun: the CLI works on it. Done: a result covers it.
	Begun bool `json:"begun,omitempty"`
	Done  bool `json:"done,omitempty"`
	// ahead: it was sent before it was known whether the CLI is there.
	ahead bool
}

// letters are the turn's messages on their way to the CLI. Their names are made from the
// log, so that a message can be sent while its place in the state is recorded:
// a server that comes after one that died in between sends it again, and the CLI passes
// over a message that it has (HZ-12).
type letters struct {
	turn    holdfast.TurnID
	account *resident.Account
	out     *resident.Outbox
	folder  *folder.Folder
	list    []sent
}

// unsent are the turn's messages that were not handed to the CLI yet.
func (l *letters) unsent() []resident.Message {
	return l.account.Without(func(seq int64) bool {
		return slices.ContainsFunc(l.list, func(s sent) bool { return s.Seq == seq })
	})
}

// send adds a message to the outbox. At is its place in the log; a reminder has none, it
// counts down.
func (l *letters) send(call holdfast.CallID, seq, at int64, text string) {
	id := promptID(call, l.turn, at)
	l.list = append(l.list, sent{UUID: id, Seq: seq})
	l.out.Add(prompt(id, text), id)
}

// again adds a message to the outbox that the CLI never got.
func (l *letters) again(uuid string) {
	i := slices.IndexFunc(l.list, func(s sent) bool { return s.UUID == uuid && !s.Begun && !s.Done })
	if i < 0 {
		return
	}
	if text, ok := l.text(l.list[i].Seq); ok {
		l.out.Add(prompt(uuid, text), uuid)
	}
}

// text is the text of a message as it is sent.
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

// sentAhead marks all messages as sent ahead.
func (l *letters) sentAhead() {
	for i := range l.list {
		l.list[i].ahead = true
	}
}

// forgetAhead forgets what was sent ahead to an attachment that never began. It reports
// whether there was anything.
func (l *letters) forgetAhead() bool {
	n := len(l.list)
	l.list = slices.DeleteFunc(l.list, func(s sent) bool { return s.ahead })
	return len(l.list) < n
}

// arrived says that the CLI is there. It reports whether something was sent ahead to it.
func (l *letters) arrived() (ahead bool) {
	for i := range l.list {
		ahead = ahead || l.list[i].ahead
		l.list[i].ahead = false
	}
	return ahead
}

// begins says that the CLI works on a message.
func (l *letters) begins(uuid string) {
	for i := range l.list {
		if s := &l.list[i]; s.UUID == uuid {
			s.Begun = true
		}
	}
}

// cover says that a result covers messages; without names, those that the CLI works on,
// or with all, every one. It reports whether it is the first result for one of them.
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

// done says that no answer is awaited to any message.
func (l *letters) done() {
	for i := range l.list {
		l.list[i].Done = true
	}
}

// open reports whether the CLI was given a message that no result covers.
func (l *letters) open() bool {
	return slices.ContainsFunc(l.list, func(s sent) bool { return !s.Done && !s.ahead })
}

// begun reports whether the CLI began with a message of the turn.
func (l *letters) begun() bool {
	return slices.ContainsFunc(l.list, func(s sent) bool { return s.Begun || s.Done })
}

// seen is the newest message of the user that the CLI works on, last the newest one that
// was handed to it.
func (l *letters) seen() (seen, last int64) {
	for _, s := range l.list {
		if last = max(last, s.Seq); s.Begun || s.Done {
			seen = max(seen, s.Seq)
		}
	}
	return seen, last
}

// promptID names a message to the process of a call: the same whichever server sends it, so
// that the CLI knows it again, and another one for another process, whose transcript may
// hold the message of a former one.
func promptID(call holdfast.CallID, turn holdfast.TurnID, at int64) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %d", call, turn, at))
	b := sum[:16]
	b[6], b[8] = b[6]&0x0f|0x80, b[8]&0x3f|0x80 // a UUID of version 8
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
