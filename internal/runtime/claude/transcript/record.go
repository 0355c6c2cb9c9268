package transcript

import (
	"encoding/json"
	"slices"

	"github.com/holdfast-run/holdfast"
)

// Record is what the log recorded of the transcripts of one agent. The zero Record is empty and
// ready for use.
type Record struct {
	files map[string]*recorded
	order []string
	// tail is the uuid of the agent's last answer in the newest completed turn.
	tail     string
	prompted bool
	// bad says why the record is damaged and cannot be used; nil if it can.
	bad error
}

type recorded struct {
	entries map[string]entry
	// last is the uuid of the newest entry of the conversation, answer that of the agent's newest entry.
	last, answer string
}

// Add adds recorded entries; it must be called in log order.
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
			r.bad = holdfast.Errorf(holdfast.KindTooLarge, op, "the session's log holds over %d entries of one transcript", mostEntries)
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

// Prompted reports whether the entries of the last call of Add contain one of type user in the main conversation: a
// prompt, or the outcome of a tool use.
func (r *Record) Prompted() bool { return r.prompted }

// Completed records that a turn of the session completed after the entries added so far.
func (r *Record) Completed() {
	if f := r.files[Main]; f != nil && f.answer != "" {
		r.tail = f.answer
	}
}

// Answered sets the last answer of the newest turn to the uuid in the agent's state, unless that is empty:
// the CLI may never have mirrored that answer.
func (r *Record) Answered(uuid string) {
	if uuid != "" {
		r.tail = uuid
	}
}

// Names returns the names of the recorded transcripts, including the main one, in the order of
// their first entries.
func (r *Record) Names() []string { return slices.Clone(r.order) }

// Len returns the number of recorded entries of the main conversation.
func (r *Record) Len() int {
	if f := r.files[Main]; f != nil {
		return len(f.entries)
	}
	return 0
}

// Whole returns why the record does not hold the whole conversation: an answer that a turn
// completed with is missing, or an entry that others refer to. If it returns nil, the transcript
// can be written again from the log.
func (r *Record) Whole() error {
	f := r.files[Main]
	switch {
	case r.bad != nil:
		return r.bad
	case f == nil || f.last == "":
		return holdfast.Errorf(holdfast.KindNotFound, op, "the session's log holds no transcript of the agent")
	}
	if _, ok := f.entries[r.tail]; r.tail != "" && !ok {
		return holdfast.Errorf(holdfast.KindNotFound, op, "the agent's transcript in the session's log lacks the newest answer (entry %s)", holdfast.Quote(r.tail))
	}
	_, err := walk(f.entries, f.last, "the transcript in the log")
	return err
}

// walk follows the chain of entries from its end to its root and returns their ids.
func walk(entries map[string]entry, from, where string) (map[string]bool, error) {
	seen := make(map[string]bool, len(entries))
	for at := from; at != ""; {
		e, ok := entries[at]
		if !ok {
			return nil, holdfast.Errorf(holdfast.KindNotFound, op, "the conversation in %s lacks entry %s", where, holdfast.Quote(at))
		}
		if seen[at] {
			return nil, holdfast.Errorf(holdfast.KindInvalid, op, "in %s the entries from %s on refer to each other in a circle", where, holdfast.Quote(at))
		}
		seen[at] = true
		at = e.parent
	}
	return seen, nil
}

// MostBytes is the most bytes of all transcripts of an agent that are written again, and of a
// single one that is read.
const MostBytes = 64 << 20

// Writer builds transcripts again from what the log recorded. The zero Writer is ready for use.
type Writer struct {
	files map[string][]byte
	order []string
	bytes int
}

// Add adds recorded entries, in log order. It returns KindTooLarge if they are too large.
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
			// Of entries of type agent_metadata the CLI stores only the newest, in a metadata file.
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
			return holdfast.Errorf(holdfast.KindTooLarge, op, "the agent's transcripts in the session's log are over %d bytes", MostBytes)
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

// File is a transcript file to write. Path returns its path for Name.
type File struct {
	Name string
	Data []byte
}

// Files returns the files, those of child agents first, so that the main conversation is written
// last.
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
