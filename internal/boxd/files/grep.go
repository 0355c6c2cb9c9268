package files

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd/paths"
	"github.com/holdfast-run/holdfast/internal/boxd/pattern"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

const (
	defaultGrep = 1000
	maxGrepHits = 10_000
	maxContext  = 100
	// maxGrepPattern is the longest expression, in bytes.
	maxGrepPattern = 10_000
	// maxLine is how much of a line is shown.
	maxLine = 1000
)

// The modes of a grep; the empty one is files.
const (
	grepFiles   = "files"
	grepContent = "content"
	grepCount   = "count"
)

// Grep searches the files below Path (empty: the workspace), or the one file
// that Path names, in path order. Files that hold a NUL byte or more than 10 MiB
// and directories named .git are passed over; symlinks are not followed. A Glob
// without a slash is matched against names, otherwise against paths below Path.
// The limit (0 is 1000, at most 10,000) counts files, or in mode content
// matching lines. A line is shown up to 1000 bytes, around its match.
func (f *FS) Grep(req wire.GrepRequest) (wire.GrepAnswer, error) {
	const op = "file.grep"
	ans := wire.GrepAnswer{Matches: []wire.GrepMatch{}}
	s, err := f.newSearch(op, req)
	if err != nil {
		return ans, err
	}
	root, err := f.resolveDir(op, req.Path)
	if err != nil {
		return ans, err
	}
	defer s.end()
	err = s.begin(op, req.Path, root)
	switch {
	case err == nil:
		err = s.dir("")
	case errors.Is(err, syscall.ENOTDIR):
		// The path is a file, or does not exist.
		s.root = root
		err = s.single(op, req.Path, root)
	}
	if err != nil {
		return ans, fail(op, req.Path, err)
	}
	ans.Matches = append(ans.Matches, s.out...)
	ans.Truncated = s.truncated
	return ans, nil
}

// search is one grep under way.
type search struct {
	*walk
	matcher
	glob   *pattern.Pattern
	byName bool
	mode   string
	before int
	after  int
	limit  int
	hits   int
	out    []wire.GrepMatch
	room   int
	stop   bool
	buf    []byte
}

func (f *FS) newSearch(op string, req wire.GrepRequest) (*search, error) {
	limit, err := limitOf(op, req.Limit, defaultGrep, maxGrepHits)
	if err != nil {
		return nil, err
	}
	if req.Before < 0 || req.After < 0 {
		return nil, holdfast.Errorf(holdfast.KindInvalid, op, "before %d and after %d may not be negative", req.Before, req.After)
	}
	s := &search{
		walk: f.newWalk(), mode: req.Mode, limit: limit, room: answerBytes,
		before: min(req.Before, maxContext), after: min(req.After, maxContext),
	}
	switch s.mode {
	case "":
		s.mode = grepFiles
	case grepFiles, grepContent, grepCount:
	default:
		return nil, holdfast.Errorf(holdfast.KindInvalid, op, "%s is not a mode", holdfast.Quote(req.Mode)).
			WithHint("use files, content or count")
	}
	if s.matcher, err = newMatcher(op, req); err != nil {
		return nil, err
	}
	s.matcher.late = s.walk.late
	if req.Glob != "" {
		if s.glob, err = pattern.Compile(op, DecodeName(req.Glob)); err != nil {
			return nil, err
		}
		s.byName = !strings.Contains(strings.TrimPrefix(req.Glob, "./"), "/")
	}
	return s, nil
}

// dir searches a directory; rel is its path below the root, with a final slash.
func (s *search) dir(rel string) error {
	fd, err := s.open(rel)
	if err != nil {
		return err
	}
	entries, err := s.entries(fd)
	// A deep tree must not take a descriptor for each level.
	_ = unix.Close(fd)
	if err != nil {
		return err
	}
	defer s.done(entries)
	for _, e := range entries {
		if s.stop || s.walk.late() {
			return nil
		}
		child := rel + e.name
		switch {
		case !s.holds(child):
		case e.kind == kindDir:
			if e.name == ".git" {
				continue
			}
			if err := s.dir(child + "/"); err != nil && len(child) >= maxPath {
				s.truncated = true
			}
		case e.kind == kindFile && s.wanted(rel, e.name):
			// A file that cannot be read is passed over, like one that went away.
			file, err := regularBelow("file.grep", child, s.top, child)
			if data, ok, err := s.load(file, err); err == nil && ok {
				s.file(paths.Join(s.root, child), data)
			}
		}
	}
	return nil
}

func (s *search) wanted(rel, name string) bool {
	switch {
	case s.glob == nil:
		return true
	case s.byName:
		return s.glob.Match(name)
	}
	return s.glob.Match(rel + name)
}

// single searches a file that the request named: what would be passed over in a
// tree is an error here.
func (s *search) single(op, shown, path string) error {
	if s.glob != nil && !s.wanted("", filepath.Base(path)) {
		return nil
	}
	data, ok, err := s.load(s.fs.openRegular(op, shown, path, unix.O_RDONLY))
	if err != nil {
		return err
	}
	if !ok {
		return holdfast.Errorf(holdfast.KindTooLarge, op, "%s is larger than %d bytes", holdfast.Quote(shown), maxGrep).
			WithHint("search it with a command")
	}
	s.file(path, data)
	return nil
}

// load reads an opened file into the shared buffer, and closes it; ok is false if the
// file is too large.
func (s *search) load(file *file, err error) (data []byte, ok bool, _ error) {
	if err != nil {
		return nil, false, err
	}
	defer file.close()
	data, over, err := file.readAll(s.buf, maxGrep)
	if err != nil || over {
		return nil, false, err
	}
	s.buf = data
	return data, true, nil
}

// file searches one file's content.
func (s *search) file(path string, data []byte) {
	if !s.possible(data) || bytes.IndexByte(data, 0) >= 0 {
		return
	}
	shown := EncodeName(s.fs.shown(path))
	switch s.mode {
	case grepFiles:
		if s.any(data) {
			s.add(wire.GrepMatch{Path: shown})
		}
	case grepCount:
		if n := s.count(data); n > 0 {
			s.add(wire.GrepMatch{Path: shown, Count: n})
		}
	default:
		c := &contents{search: s, path: shown, data: data, nextNo: 1}
		s.each(data, c.match)
		if !s.stop {
			c.trail(len(data))
		}
	}
}

func (s *search) any(data []byte) (found bool) {
	s.each(data, func(int, int, int) bool { found = true; return false })
	return found
}

// add records a hit; it ends the search when there is no room.
func (s *search) add(m wire.GrepMatch) {
	if !m.Context && s.hits == s.limit {
		s.truncated, s.stop = true, true
		return
	}
	if s.room -= jsonLen(m.Path) + jsonLen(m.Text) + 80; s.room < 0 {
		s.truncated, s.stop = true, true
		return
	}
	if !m.Context {
		s.hits++
	}
	s.out = append(s.out, m)
}

// contents writes the matching lines of one file with the lines around them,
// each line once.
type contents struct {
	*search
	path string
	data []byte
	// next is where the first line begins that was not yet written, nextNo its number.
	next, nextNo int
	// owed is how many lines of context still follow the last match.
	owed int
}

// match writes the line at [start, end), number no, after the context it is owed.
func (c *contents) match(start, end, no int) bool {
	if start < c.next {
		return true // a multi-line match wrote it already
	}
	if c.hits == c.limit {
		c.truncated, c.stop = true, true
		return false
	}
	c.trail(start)
	from, fromNo := start, no
	for n := 0; n < c.before && from > c.next; n++ {
		from = lineStart(c.data, from-1)
		fromNo--
	}
	for from < start && !c.stop {
		e := lineEnd(c.data, from)
		c.line(from, e, fromNo, true)
		from, fromNo = e+1, fromNo+1
	}
	if c.stop {
		return false
	}
	c.line(start, end, no, false)
	c.owed = c.after
	return !c.stop
}

// trail writes the context owed after the last match, up to an offset.
func (c *contents) trail(to int) {
	for c.owed > 0 && c.next < to && !c.stop {
		c.owed--
		c.line(c.next, lineEnd(c.data, c.next), c.nextNo, true)
	}
}

func (c *contents) line(start, end, no int, context bool) {
	c.next, c.nextNo = end+1, no+1
	c.add(wire.GrepMatch{Path: c.path, Line: no, Text: c.cut(c.data[start:end]), Context: context})
}

// cut shows a line: without its carriage return, valid UTF-8, at most maxLine
// bytes, around the match where there is one.
func (c *contents) cut(line []byte) string {
	line = trimCR(line)
	if len(line) <= maxLine {
		return strings.ToValidUTF8(string(line), "\uFFFD")
	}
	from := 0
	if m := c.re.FindIndex(line); m != nil && m[0] > maxLine/2 {
		from = min(m[0]-maxLine/4, len(line)-maxLine)
	}
	text := string(line[from:min(from+maxLine, len(line))])
	if from > 0 {
		text = "…" + text
	}
	if from+maxLine < len(line) {
		text += "…"
	}
	// A character cut in half at either end goes.
	return strings.ToValidUTF8(text, "")
}
