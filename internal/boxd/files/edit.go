package files

import (
	"bytes"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

const (
	// snippetAround is how many lines before and after the change are in the snippet of an edit.
	// snippetLines is how many lines a snippet has at most. snippetWidth is after how many bytes a
	// line of a snippet is cut.
	snippetAround = 3
	snippetLines  = 20
	snippetWidth  = 300
)

// Edit replaces text in a file of up to 10 MiB. Old must occur exactly once (overlapping
// occurrences count separately), unless All is set. Line ends are preserved: in a file whose line
// ends are all CRLF, an LF in Old or New means CRLF. Edit replaces the file in the same way as
// Write. Edits and writes of one file by boxd wait for each other. If another process changed the
// file since Edit read it, Edit returns conflict and changes nothing.
func (f *FS) Edit(req wire.EditRequest) (wire.EditAnswer, error) {
	const op = "file.edit"
	var none wire.EditAnswer
	if req.Old == req.New {
		return none, holdfast.Errorf(holdfast.KindInvalid, op, "the old and the new text of the edit are the same")
	}
	path, err := f.door.resolve(op, req.Path)
	if err != nil {
		return none, err
	}
	t, err := f.openTarget(op, req.Path, path)
	if err != nil {
		return none, err
	}
	defer t.close()
	if !t.exists {
		return none, fail(op, req.Path, unix.ENOENT)
	}
	defer t.lock(f.locks)()
	file, err := regularAt(op, req.Path, t.dir, t.name, unix.O_RDONLY)
	if err != nil {
		return none, err
	}
	defer file.close()
	data, over, err := file.readAll(nil, maxEdit)
	switch {
	case err != nil:
		return none, fail(op, req.Path, err)
	case over:
		return none, holdfast.Errorf(holdfast.KindTooLarge, op, "the file %s is larger than %d bytes, the most that can be edited", holdfast.Quote(req.Path), maxEdit).
			WithHint("edit the file with a command instead of the edit tool")
	}
	e, err := edit(op, req, data)
	if err != nil {
		return none, err
	}
	unchanged := func() error {
		now, err := statAt(t.dir, t.name)
		if err != nil {
			return fail(op, req.Path, err)
		}
		if !sameState(&now, &file.st) {
			return holdfast.Errorf(holdfast.KindConflict, op, "the file %s changed while it was edited, so the edit was not made", holdfast.Quote(req.Path)).
				WithHint("read the file again, then edit it")
		}
		return nil
	}
	if _, err := f.replace(op, req.Path, t, bytes.NewReader(e.data), unchanged); err != nil {
		return none, err
	}
	return wire.EditAnswer{Replaced: e.replaced, Snippet: snippet(e.data, e.first, e.width)}, nil
}

func sameState(a, b *unix.Stat_t) bool {
	return a.Dev == b.Dev && a.Ino == b.Ino && a.Size == b.Size && a.Mtim == b.Mtim && a.Ctim == b.Ctim
}

// edited is the result of an edit in memory: the new content, the number of replacements, and the
// position and length of the first new text.
type edited struct {
	data         []byte
	replaced     int
	first, width int
}

// edit applies a request to the content of a file.
func edit(op string, req wire.EditRequest, data []byte) (edited, error) {
	var none edited
	name := holdfast.Quote(req.Path)
	if req.Old == "" {
		return none, holdfast.Errorf(holdfast.KindInvalid, op, "the old text of the edit is empty").WithHint("write the whole file instead of editing it")
	}
	if bytes.IndexByte(data, 0) >= 0 {
		return none, holdfast.Errorf(holdfast.KindInvalid, op, "%s is a binary file, which cannot be edited", name)
	}
	before, after := []byte(req.Old), []byte(req.New)
	if allCRLF(data) {
		before, after = toCRLF(before), toCRLF(after)
		if bytes.Equal(before, after) {
			return none, holdfast.Errorf(holdfast.KindInvalid, op, "the old and the new text differ in line ends only, but an edit keeps the CRLF line ends of the file %s", name)
		}
	}
	first := bytes.Index(data, before)
	if first < 0 {
		return none, holdfast.Errorf(holdfast.KindInvalid, op, "the old text was not found in %s (0 occurrences)", name).
			WithHint("read the file and copy the text exactly, spaces and indentation included")
	}
	n := 1
	if req.All {
		n = bytes.Count(data, before)
	} else if places := occurrences(data, before); places > 1 {
		count := fmt.Sprint(places)
		if places == maxPlaces {
			count = "at least " + count
		}
		return none, holdfast.Errorf(holdfast.KindInvalid, op, "the old text occurs %s times in %s", count, name).
			WithHint("give more of the surrounding text, or replace all occurrences")
	}
	if size := len(data) + n*(len(after)-len(before)); size > maxEdit {
		return none, holdfast.Errorf(holdfast.KindTooLarge, op, "after the edit the file %s would have %d bytes, more than the allowed %d", name, size, maxEdit)
	}
	return edited{data: bytes.Replace(data, before, after, n), replaced: n, first: first, width: len(after)}, nil
}

// maxPlaces is the number at which occurrences stops counting: in a long text each occurrence takes long to find.
const maxPlaces = 100

// occurrences returns how often text occurs in data, overlapping occurrences included, but at most maxPlaces.
func occurrences(data, text []byte) (n int) {
	for pos := 0; n < maxPlaces; n++ {
		i := bytes.Index(data[pos:], text)
		if i < 0 {
			break
		}
		pos += i + 1
	}
	return n
}

// allCRLF reports whether data has line ends and each of them is CRLF.
func allCRLF(data []byte) bool {
	n := bytes.Count(data, newline)
	return n > 0 && n == bytes.Count(data, []byte("\r\n"))
}

// toCRLF returns text with CRLF as the only kind of line end.
func toCRLF(text []byte) []byte {
	if bytes.IndexByte(text, '\n') < 0 {
		return text
	}
	text = bytes.ReplaceAll(text, []byte("\r\n"), newline)
	return bytes.ReplaceAll(text, newline, []byte("\r\n"))
}

// snippet returns the lines of data that contain the offsets from at to at+width, and a few lines
// before and after them, each with its line number.
func snippet(data []byte, at, width int) string {
	if len(data) == 0 {
		return ""
	}
	start := lineStart(data, min(at, len(data)))
	for range snippetAround {
		if start > 0 {
			start = lineStart(data, start-1)
		}
	}
	no := bytes.Count(data[:start], newline) + 1
	end := min(at+width, len(data))
	var b strings.Builder
	for n, after := 0, 0; n < snippetLines && start < len(data) && after <= snippetAround; n++ {
		stop := lineEnd(data, start)
		line := trimCR(data[start:stop])
		more := ""
		if len(line) > snippetWidth {
			line, more = line[:snippetWidth], "…"
		}
		fmt.Fprintf(&b, "%6d\t%s%s\n", no, strings.ToValidUTF8(string(line), "\uFFFD"), more)
		if stop >= end {
			after++
		}
		start, no = stop+1, no+1
	}
	return strings.TrimSuffix(b.String(), "\n")
}
