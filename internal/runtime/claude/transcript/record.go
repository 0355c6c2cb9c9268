package transcript

import (
	"encoding/json"
	"slices"

	"github.com/holdfast-run/holdfast"
)

// Record is what the log holds of the transcripts of one agent. The zero Record is
// empty and ready.
type Record struct {
	files map[string]*recorded
	order []string
	// tail is the newest answer when a turn completed.
	tail     string
	prompted bool
	// bad says why the record itself cannot be gone by.
	bad error
}

type recorded struct {
	entries map[string]entry
	// last is the newest entry of the conversation, answer the newest of the agent.
	last, answer string
}

// Add takes in entries, in log order.
func (r *Record) Add(m holdfast.AgentMirrored) {
	if m.File != Main && !child(m.File) {
		return
	}
	f := r.files[m.File]
	if f == nil {
		f = &recorded{entries: map[string]entry{}}
		if r.files == nil {
			r.files = map[string]*recorded{}
		}
		r.files[m.File] = f
		r.order = append(r.order, m.File)
	}
	r.prompted = false
	for _, raw := range m.Entries {
		e, err := parse(raw)
		if err != nil {
			r.bad = err
			continue
		}
		if !e.chained() {
			continue
		}
		if f.entries[e.uuid] = e; len(f.entries) > mostEntries {
			r.bad = holdfast.Errorf(holdfast.KindTooLarge, op, "the log holds over %d entries of a transcript", mostEntries)
			return
		}
		if e.side && m.File == Main {
			continue
		}
		f.last = e.uuid
		r.prompted = r.prompted || m.File == Main && e.kind == "user"
		if e.kind == "assistant" {
			f.answer = e.uuid
		}
	}
}

// Prompted reports whether the entries added last gave the agent something to answer,
// in its own conversation.
func (r *Record) Prompted() bool { return r.prompted }

// Completed notes that a turn of the session completed here.
func (r *Record) Completed() {
	if f := r.files[Main]; f != nil && f.answer != "" {
		r.tail = f.answer
	}
}

// Answered says which answer the newest turn completed with, where that is known from
// elsewhere: it may never have been mirrored.
func (r *Record) Answered(uuid string) {
	if uuid != "" {
		r.tail = uuid
	}
}

// Names are the transcripts that were recorded, the main one among them, in the order
// of their first entries.
func (r *Record) Names() []string { return slices.Clone(r.order) }

// Len is how many entries of the conversation are recorded.
func (r *Record) Len() int {
	if f := r.files[Main]; f != nil {
		return len(f.entries)
	}
	return 0
}

// Whole reports why the record does not hold the conversation: an answer that a turn
// completed with never came, or an entry that others go on from. Without a reason the
// transcript can be written anew from the log.
func (r *Record) Whole() error {
	f := r.files[Main]
	switch {
	case r.bad != nil:
		return r.bad
	case f == nil || f.last == "":
		return holdfast.Errorf(holdfast.KindNotFound, op, "the log holds no transcript of the agent")
	}
	if _, ok := f.entries[r.tail]; r.tail != "" && !ok {
		return holdfast.Errorf(holdfast.KindNotFound, op, "the log holds no transcript of the newest answer (%s)", holdfast.Quote(r.tail))
	}
	_, err := walk(f.entries, f.last, "the log")
	return err
}

// walk follows a chain from its end to its root.
func walk(entries map[string]entry, from, where string) (map[string]bool, error) {
	seen := make(map[string]bool, len(entries))
	for at := from; at != ""; {
		e, ok := entries[at]
		if !ok {
			return nil, holdfast.Errorf(holdfast.KindNotFound, op, "%s misses entry %s, which the conversation goes through", where, holdfast.Quote(at))
		}
		if seen[at] {
			return nil, holdfast.Errorf(holdfast.KindInvalid, op, "in %s the entries from %s on go in a circle", where, holdfast.Quote(at))
		}
		seen[at] = true
		at = e.parent
	}
	return seen, nil
}

// MostBytes bounds what the transcripts of an agent may take when they are written
// anew, and a single one that is read.
const MostBytes = 64 << 20

// Writer writes transcripts anew from what the log recorded. The zero Writer is ready.
type Writer struct {
	files map[string][]byte
	order []string
	bytes int
}

// Add takes in entries, in log order. Too many bytes are too_large.
func (w *Writer) Add(m holdfast.AgentMirrored) error {
	if m.File != Main && !child(m.File) {
		return nil
	}
	for _, raw := range m.Entries {
		name, line := m.File, append(slices.Clone(raw), '\n')
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(raw, &fields); err != nil {
			return invalid(raw)
		}
		if m.File != Main && string(fields["type"]) == `"agent_metadata"` {
			// The CLI keeps the newest, in a file of its own.
			delete(fields, "type")
			kept, err := json.Marshal(fields)
			if err != nil {
				return invalid(raw)
			}
			name, line = meta(m.File), kept
			w.bytes -= len(w.files[name])
			delete(w.files, name)
		}
		if w.bytes += len(line); w.bytes > MostBytes {
			return holdfast.Errorf(holdfast.KindTooLarge, op, "what the log holds of the agent's transcripts is over %d bytes", MostBytes)
		}
		w.put(name, line)
	}
	return nil
}

func (w *Writer) put(name string, line []byte) {
	if w.files == nil {
		w.files = map[string][]byte{}
	}
	if !slices.Contains(w.order, name) {
		w.order = append(w.order, name)
	}
	w.files[name] = append(w.files[name], line...)
}

// File is a file to write; Name is for Path.
type File struct {
	Name string
	Data []byte
}

// Files are the files, those of child agents first: the conversation is there when
// everything is.
func (w *Writer) Files() []File {
	var out []File
	for _, name := range w.order {
		if name != Main {
			out = append(out, File{name, w.files[name]})
		}
	}
	if data, ok := w.files[Main]; ok {
		out = append(out, File{Main, data})
	}
	return out
}
