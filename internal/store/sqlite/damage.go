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
)

// maxDamage bounds how many damaged places are named.
const maxDamage = 100

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// eventSum is the checksum of an event's row, its place in the log included.
func eventSum(id, at int64, typ, turn string, data []byte) int64 {
	var room [128]byte
	b := binary.LittleEndian.AppendUint64(room[:0], uint64(id))
	b = binary.LittleEndian.AppendUint64(b, uint64(at))
	b = append(append(b, typ...), 0)
	b = append(append(b, turn...), 0)
	return int64(crc32.Update(crc32.Update(0, castagnoli, b), castagnoli, data))
}

// whole reports whether an event's row is what was written. One from before there
// were checksums counts as long as it is an event.
func whole(id, at int64, typ, turn string, data []byte, sum int64) bool {
	if sum < 0 {
		return typ != "" && utf8.Valid(data) && json.Valid(data)
	}
	return eventSum(id, at, typ, turn, data) == sum
}

// scanEvent reads an event of a session. One that is not what was written becomes
// event.damaged, so that the others of its session can be read (I-37).
func (s *Store) scanEvent(rows *sql.Rows, session holdfast.SessionID) holdfast.Event {
	e := holdfast.Event{Session: session}
	var key, at, sum int64
	err := rows.Scan(&key, &e.Type, &e.Turn, &at, (*[]byte)(&e.Data), &sum)
	e.Seq, e.Time = key&maxSeq, fromMS(at)
	if err == nil && whole(key, at, string(e.Type), string(e.Turn), e.Data, sum) {
		return e
	}
	s.damaged(fmt.Sprintf("event #%d of session %s", e.Seq, session))
	e.Type, e.Turn = holdfast.EventDamaged, ""
	e.Data = json.RawMessage(`{"reason":"its checksum does not match"}`)
	if err != nil {
		e.Data = json.RawMessage(`{"reason":"its row cannot be read"}`)
	}
	return e
}

// damage is what was found damaged, each place once.
type damage struct {
	mu    sync.Mutex
	known []string
}

// Damaged are the places that were found damaged since the store was opened, at most
// a hundred.
func (s *Store) Damaged() []string {
	s.damage.mu.Lock()
	defer s.damage.mu.Unlock()
	return slices.Clone(s.damage.known)
}

// damaged notes a damaged place and says so the first time.
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

// The mark beside a database says that a server has it open, and from when on it is
// being closed: only then may its log be gone at the next start.
var markOpen, markClosing = []byte("open\n"), []byte("shut\n")

func (s *Store) markPath() string { return s.cfg.Path + "-open" }

// lookForLog says when the last server did not close the database and its log is gone.
// It comes before SQLite makes another log.
func (s *Store) lookForLog() {
	mark, err := os.ReadFile(s.markPath())
	if err != nil || !bytes.Equal(mark, markOpen) {
		return
	}
	if _, err := os.Lstat(s.cfg.Path + "-wal"); errors.Is(err, fs.ErrNotExist) {
		s.damaged(s.cfg.Path + "-wal is missing after a server that was killed: the newest events may be gone, " +
			"unless another program opened the database meanwhile and moved them into it")
	}
}

// opened leaves the mark of an open database. It comes when there is a log. A disk
// without room for it costs the warning, not the start.
func (s *Store) opened() {
	if err := s.mark(markOpen, os.O_CREATE); err != nil {
		s.cfg.Warn(failure("store.open", err))
	}
}

// closing changes the mark in place, which needs no room. It comes before SQLite
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

// mark writes the mark, on disk on return.
func (s *Store) mark(text []byte, flags int) error {
	f, err := os.OpenFile(s.markPath(), os.O_WRONLY|flags, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(text, 0)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil || flags == 0 {
		return err
	}
	d, err := os.Open(filepath.Dir(s.cfg.Path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
