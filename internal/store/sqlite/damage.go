package sqlite

import (
	"bytes"
	"database/sql"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/durable"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// maxDamage bounds how many damaged places are listed.
const maxDamage = 100

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sumRooms keeps the buffers of eventSum, which escape into the checksum's code.
var sumRooms = sync.Pool{New: func() any { return new([256]byte) }}

// eventSum returns the checksum of an event's row, including its place in the log. An event
// of the session's own agent has the sum that it had before there were child agents.
func eventSum(id, at int64, e *holdfast.Event) int64 {
	room := sumRooms.Get().(*[256]byte)
	defer sumRooms.Put(room)
	b := binary.LittleEndian.AppendUint64(room[:0], uint64(id))
	b = binary.LittleEndian.AppendUint64(b, uint64(at))
	b = append(append(b, e.Type...), 0)
	b = append(append(b, e.Turn...), 0)
	if e.Agent != "" {
		b = append(append(b, e.Agent...), 0)
	}
	return int64(crc32.Update(crc32.Update(0, castagnoli, b), castagnoli, e.Data))
}

// whole reports whether an event's row is as it was written. A row from before
// checksums existed counts as whole if it is an event.
func whole(id, at int64, e *holdfast.Event, sum int64) bool {
	if sum < 0 {
		return e.Type != "" && utf8.Valid(e.Data) && json.Valid(e.Data)
	}
	return eventSum(id, at, e) == sum
}

// scanEvent reads an event of a session. A damaged one becomes event.damaged, so that
// the other events of its session can be read (I-37).
func (s *Store) scanEvent(rows *sql.Rows, session holdfast.SessionID) holdfast.Event {
	e := holdfast.Event{Session: session}
	var key, at, sum int64
	// database/sql is fast with pointers to plain types only.
	err := rows.Scan(&key, (*string)(&e.Type), (*string)(&e.Turn), &at, (*[]byte)(&e.Data), &sum, (*string)(&e.Agent))
	e.Seq, e.Time = key&journal.MaxSeq, fromMS(at)
	if err == nil && whole(key, at, &e, sum) {
		return e
	}
	s.damaged(fmt.Sprintf("event #%d of session %s", e.Seq, session))
	e.Type, e.Turn, e.Agent = holdfast.EventDamaged, "", ""
	e.Data = json.RawMessage(`{"reason":"its checksum does not match"}`)
	if err != nil {
		e.Data = json.RawMessage(`{"reason":"its row cannot be read"}`)
	}
	return e
}

// damage lists the damaged places, each once.
type damage struct {
	mu    sync.Mutex
	known []string
}

// Damaged lists the damaged places found since the store was opened, at most a hundred.
func (s *Store) Damaged() []string {
	s.damage.mu.Lock()
	defer s.damage.mu.Unlock()
	return slices.Clone(s.damage.known)
}

// damaged records a damaged place and logs it the first time.
func (s *Store) damaged(place string) {
	s.damage.mu.Lock()
	known := slices.Contains(s.damage.known, place) || len(s.damage.known) >= maxDamage
	if !known {
		s.damage.known = append(s.damage.known, place)
	}
	s.damage.mu.Unlock()
	if !known {
		s.cfg.Warn(holdfast.Errorf(holdfast.KindInternal, "store.damaged", "%s: damaged: %s", s.cfg.Path, place).
			WithHint("holdfast doctor --verify says what is damaged; a backup of the data directory has it whole"))
	}
}

// The mark next to a database says that a server has it open or has begun to close it:
// only in the second case may the write-ahead log be missing at the next start.
var markOpen, markClosing = []byte("open\n"), []byte("shut\n")

func (s *Store) markPath() string { return markOf(s.cfg.Path) }

func markOf(path string) string { return path + "-open" }

// lookForLog warns if the last server did not close the database and its log is
// missing. It runs before SQLite makes a new log.
func (s *Store) lookForLog() {
	if lost := lostLog(s.cfg.Path); lost != "" {
		s.damaged(lost)
	}
}

// lostLog says that the last server did not close the database and that its log is gone;
// empty when that is not so.
func lostLog(path string) string {
	mark, err := os.ReadFile(markOf(path))
	if err != nil || !bytes.Equal(mark, markOpen) || hasLog(path) {
		return ""
	}
	return path + "-wal is missing after a server that was killed: the newest events may be gone, " +
		"unless another program opened the database meanwhile and moved them into it"
}

// opened leaves the mark of an open database, once the log exists. If the disk has no
// room for it, the store warns and goes on.
func (s *Store) opened() {
	if err := s.mark(markOpen, os.O_CREATE); err != nil {
		s.cfg.Warn(failure("store.open", err))
	}
}

// closing changes the mark in place, which needs no space. It runs before SQLite
// removes the log.
func (s *Store) closing() {
	if s.writeDB == nil {
		return
	}
	if err := s.mark(markClosing, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.cfg.Warn(failure("store.close", err))
	}
}

// closedClean removes the mark.
func (s *Store) closedClean() {
	if mark, err := os.ReadFile(s.markPath()); err == nil && bytes.Equal(mark, markClosing) {
		_ = os.Remove(s.markPath())
	}
}

// mark writes the mark and syncs it.
func (s *Store) mark(text []byte, flags int) error {
	f, err := os.OpenFile(s.markPath(), os.O_WRONLY|flags, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(text, 0)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil || flags == 0 {
		return err
	}
	return durable.SyncDir(filepath.Dir(s.cfg.Path))
}
