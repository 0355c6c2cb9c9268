package boxd

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/durable"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

const (
	// flushStream is how many bytes of the beginning of an output, and of its end, a stop of the box saves at most.
	flushStream = 512 << 10
	// flushAll is how many bytes of output, of all calls together, a stop of the box saves at most.
	flushAll         = 64 << 20
	outcomesHeadline = "holdfast-outcomes-1 "
)

// outcome is one line of the file of saved outcomes: a call with its answer or error, and its output.
type outcome struct {
	Call    holdfast.CallID    `json:"call"`
	Session holdfast.SessionID `json:"session,omitempty"`
	Op      wire.Op            `json:"op"`
	Hash    string             `json:"hash"`
	Answer  json.RawMessage    `json:"answer,omitempty"`
	Error   *wire.Error        `json:"error,omitempty"`
	Stdout  *savedStream       `json:"stdout,omitempty"`
	Stderr  *savedStream       `json:"stderr,omitempty"`
}

// savedStream is the saved part of an output. Head are its first bytes, Tail its last bytes; End is its length.
type savedStream struct {
	Head []byte `json:"head,omitempty"`
	Tail []byte `json:"tail,omitempty"`
	End  int64  `json:"end"`
}

// saveOutcomes writes the outcomes of all held calls that have finished to a file, from which the next boxd
// with the same state directory reads them. The first line of the file has the hash of the other lines.
func (s *Server) saveOutcomes() error {
	calls := s.led.held()
	if len(calls) == 0 {
		s.state.dropOutcomes()
		return nil
	}
	body, err := s.state.unlinked()
	if err != nil {
		return err
	}
	defer body.Close()
	sum := sha256.New()
	w := bufio.NewWriter(io.MultiWriter(body, sum))
	enc := json.NewEncoder(w)
	budget := int64(flushAll)
	for _, c := range calls {
		if !c.finished() {
			continue // the call has not ended, so its outcome is unknown
		}
		o := outcome{Call: c.id, Session: c.session, Op: c.op, Hash: c.hash, Answer: c.answer, Error: c.err}
		if c.exec != nil {
			o.Stdout = c.exec.stdout.save(&budget)
			if c.exec.stderr != nil {
				o.Stderr = c.exec.stderr.save(&budget)
			}
		}
		if err := enc.Encode(o); err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return durable.Replace(filepath.Join(s.state.path, outcomesFile), func(out *os.File) error {
		if _, err := out.WriteString(outcomesHeadline + hex.EncodeToString(sum.Sum(nil)) + "\n"); err != nil {
			return err
		}
		if _, err := body.Seek(0, io.SeekStart); err != nil {
			return err
		}
		_, err := io.Copy(out, body)
		return err
	})
}

func (d *stateDir) dropOutcomes() {
	if os.Remove(filepath.Join(d.path, outcomesFile)) == nil {
		_ = durable.SyncDir(d.path)
	}
}

// loadOutcomes adds the saved outcomes of a former life to the ledger. Their file stays until all are released.
func (s *Server) loadOutcomes() error {
	f, err := os.Open(filepath.Join(s.state.path, outcomesFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return holdfast.Errorf(holdfast.KindInvalid, "boxd state", "cannot read the file of saved call outcomes: %w", err)
	}
	defer f.Close()
	r := bufio.NewReader(f)
	head, err := r.ReadString('\n')
	if err != nil || len(head) != len(outcomesHeadline)+2*sha256.Size+1 || head[:len(outcomesHeadline)] != outcomesHeadline {
		return s.state.corrupt(outcomesFile, "its first line is not a headline with a hash")
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, r); err != nil {
		return s.state.corrupt(outcomesFile, err.Error())
	}
	if hex.EncodeToString(sum.Sum(nil)) != head[len(outcomesHeadline):len(head)-1] {
		return s.state.corrupt(outcomesFile, "the hash in its first line does not match its content")
	}
	if _, err := f.Seek(int64(len(head)), io.SeekStart); err != nil {
		return s.state.corrupt(outcomesFile, err.Error())
	}
	r.Reset(f)
	for {
		line, err := r.ReadBytes('\n')
		if err == io.EOF && len(line) == 0 {
			break
		}
		var o outcome
		if err != nil || decodeStrict(line, &o) != nil || o.Call == "" || (o.Answer == nil) == (o.Error == nil) {
			return s.state.corrupt(outcomesFile, "a line is not a valid call outcome: "+holdfast.Quote(string(line)))
		}
		s.adoptOutcome(o)
	}
	if s.adopted == 0 {
		s.state.dropOutcomes()
	}
	return nil
}

func decodeStrict(b []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	return dec.Decode(v)
}

func (s *Server) adoptOutcome(o outcome) {
	c := &call{id: o.Call, session: o.Session, op: o.Op, hash: o.Hash, answer: o.Answer, err: o.Error, done: make(chan struct{}), flushed: true}
	if o.Stdout != nil {
		e := s.newExecution(wire.ExecRequest{Merge: o.Stderr == nil})
		e.stdout.restore(o.Stdout)
		if o.Stderr != nil {
			e.stderr.restore(o.Stderr)
		}
		close(e.started)
		close(e.dead)
		c.exec = e
	}
	s.adopted++
	s.led.adopt(c)
}

// save returns the first and the last bytes of an output, at most budget bytes, and subtracts their number from budget.
func (s *spool) save(budget *int64) *savedStream {
	end, _ := s.counts()
	v := &savedStream{End: end}
	v.Head = s.take(0, min(flushStream, *budget))
	*budget -= int64(len(v.Head))
	if from := max(end-min(flushStream, *budget), int64(len(v.Head))); from < end {
		at, _ := s.readableFrom(from)
		v.Tail = s.take(at, end-at)
		*budget -= int64(len(v.Tail))
	}
	return v
}

func (s *spool) readableFrom(off int64) (from, stop int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.readable(off, true)
}

// take returns the bytes of the spool from offset off on, at most the number in most. It stops where bytes were dropped.
func (s *spool) take(off, most int64) []byte {
	var out []byte
	buf := make([]byte, min(most, 64<<10))
	for int64(len(out)) < most {
		at, n, _ := s.read(off, buf[:min(int64(len(buf)), most-int64(len(out)))], true)
		if n == 0 || at != off {
			break
		}
		out = append(out, buf[:n]...)
		off += int64(n)
	}
	return out
}

// restore fills a new spool with a saved output. An output over the memory limits goes to a file, if that can be made.
func (s *spool) restore(v *savedStream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.headEnd, s.headCap = int64(len(v.Head)), int64(len(v.Head))
	s.end, s.ring = v.End, true
	s.tailCap = max(int64(len(v.Tail)), 1)
	s.tailBase = v.End - int64(len(v.Tail))
	if size := len(v.Head) + len(v.Tail); !s.fitsMemory(size) {
		if f, err := s.pool.file(); err == nil {
			if _, err = f.Write(append(v.Head, v.Tail...)); err == nil {
				s.file = f
				return
			}
			_ = f.Close()
		}
		s.pool.memory.Add(int64(size))
	}
	s.mem, s.tailMem = v.Head, v.Tail
}
