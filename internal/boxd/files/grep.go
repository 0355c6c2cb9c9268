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
	maxContext = 100
	// maxGrepPattern is the longest regular expression, in bytes.
	maxGrepPattern = 10_000
	// maxLine is how many bytes of one line, matching or context, an answer has at most.
	maxLine = 1000
)

// The modes of a grep: list the files that match, list the matching lines, or count the matching lines
// (in a multi-line search the matches) in each file. An empty mode in a request means grepFiles.
const (
	grepFiles   = "files"
	grepContent = "content"
	grepCount   = "count"
)

// Grep searches the files below Path (empty: the workspace) in the order of their paths, or the one
// file that Path names. It skips files with a NUL byte. Below Path it also skips directories named .git, files of more
// than 10 MiB and files that it cannot read, and follows no symlink. A Glob without a slash
// selects files by their names, any other Glob by their paths below Path. The limit (0 means 1000;
// above 10,000 it means 10,000) is a number of files, or in mode content of matching lines. A line of
// more than 1000 bytes is cut to 1000 bytes around its match.
func (f *FS) Grep(req wire.GrepRequest) (wire.GrepAnswer, error) {
	const op = "file.grep"
	ans := wire.GrepAnswer{Matches: []wire.GrepMatch{}}
	s, err := f.newSearch(op, req)
	if err != nil {
		return ans, err
	}
	root, err := f.door.resolveDir(op, req.Path)
	if err != nil {
		return ans, err
	}
	defer s.walk.end()
	err = s.walk.begin(op, req.Path, root)
	switch {
	case err == nil:
		err = s.dir("")
	case errors.Is(err, syscall.ENOTDIR):
		// The path is not a directory: search it as a file.
		s.walk.root = root
		err = s.single(op, req.Path, root)
	}
	if err != nil {
		return ans, fail(op, req.Path, err)
	}
	ans.Matches = append(ans.Matches, s.found.out...)
	ans.Truncated = s.walk.truncated || s.found.full
	return ans, nil
}

// search is the state of one grep.
type search struct {
	walk    *walk
	matcher matcher
	found   found
	mode    string
	// glob selects the files to search; nil selects all. If byName is true, glob is matched against
	// the names of files, otherwise against their paths below the root of the search.
	glob          *pattern.Pattern
	byName        bool
	before, after int
	buf           []byte
}

func (f *FS) newSearch(op string, req wire.GrepRequest) (*search, error) {
	limit, err := limitOf(op, req.Limit)
	if err != nil {
		return nil, err
	}
	if req.Before < 0 || req.After < 0 {
		return nil, holdfast.Errorf(holdfast.KindInvalid, op, "the numbers of context lines (before %d, after %d) must not be negative", req.Before, req.After)
	}
	s := &search{
		walk: f.newWalk(), mode: req.Mode, found: found{limit: limit, room: answerBytes},
		before: min(req.Before, maxContext), after: min(req.After, maxContext),
	}
	switch s.mode {
	case "":
		s.mode = grepFiles
	case grepFiles, grepContent, grepCount:
	default:
		return nil, holdfast.Errorf(holdfast.KindInvalid, op, "%s is not a mode of a search", holdfast.Quote(req.Mode)).
			WithHint("use the mode files, content or count")
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

// dir searches a directory and the directories below it. rel is the path of the directory below
// the root of the search: empty, or with a slash at its end.
func (s *search) dir(rel string) error {
	fd, err := s.walk.open(rel)
	if err != nil {
		return err
	}
	entries, err := s.walk.entries(fd)
	// Close the directory before the search descends: a deep tree must not use a descriptor for each level.
	_ = unix.Close(fd)
	if err != nil {
		return err
	}
	defer s.walk.done(entries)
	for _, e := range entries {
		if s.found.full || s.walk.late() {
			return nil
		}
		child := rel + e.name
		switch {
		case !s.walk.holds(child):
		case e.kind == kindDir:
			if e.name == ".git" {
				continue
			}
			if err := s.dir(child + "/"); err != nil && len(child) >= maxPath {
				s.walk.truncated = true
			}
		case e.kind == kindFile && s.wanted(rel, e.name):
			// A file that cannot be read is skipped.
			file, err := regularBelow("file.grep", child, s.walk.top, child)
			if data, ok, err := s.load(file, err); err == nil && ok {
				s.file(paths.Join(s.walk.root, child), data)
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

// single searches the one file that the request names. If the file cannot be read or is too large,
// single returns an error; a search of a directory would skip the file.
func (s *search) single(op, shown, path string) error {
	if s.glob != nil && !s.wanted("", filepath.Base(path)) {
		return nil
	}
	data, ok, err := s.load(s.walk.door.openRegular(op, shown, path, unix.O_RDONLY))
	if err != nil {
		return err
	}
	if !ok {
		return holdfast.Errorf(holdfast.KindTooLarge, op, "the file %s is larger than %d bytes, the most that can be searched", holdfast.Quote(shown), maxGrep).
			WithHint("search the file with a command instead of the search tool")
	}
	s.file(path, data)
	return nil
}

// load reads an open file into the shared buffer and closes it; ok is false if the file is too
// large.
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

// file searches data, the content of the file at path.
func (s *search) file(path string, data []byte) {
	if !s.matcher.possible(data) || bytes.IndexByte(data, 0) >= 0 {
		return
	}
	shown := EncodeName(s.walk.door.shown(path))
	switch s.mode {
	case grepFiles:
		if s.any(data) {
			s.found.add(wire.GrepMatch{Path: shown})
		}
	case grepCount:
		if n := s.matcher.count(data); n > 0 {
			s.found.add(wire.GrepMatch{Path: shown, Count: n})
		}
	default:
		c := &contents{matcher: &s.matcher, found: &s.found, before: s.before, after: s.after, path: shown, data: data, nextNo: 1}
		s.matcher.each(data, c.match)
		if !s.found.full {
			c.trail(len(data))
		}
	}
}

func (s *search) any(data []byte) (found bool) {
	s.matcher.each(data, func(int, int, int) bool { found = true; return false })
	return found
}

// found collects the matches of a search, up to the limit, as long as they fit one answer.
type found struct {
	limit, hits int
	// room is how many bytes can still be added to the answer.
	room int
	out  []wire.GrepMatch
	// full is true once a match or a line of context was left out. The search ends then.
	full bool
}

// atLimit reports whether one more match would exceed the limit, or the search is full already. If so, it sets full.
func (f *found) atLimit() bool {
	f.full = f.full || f.hits == f.limit
	return f.full
}

// add stores a match or a line of context. If the limit or the size of the answer does not allow
// it, add sets full instead.
func (f *found) add(m wire.GrepMatch) {
	if !m.Context && f.atLimit() {
		return
	}
	if f.room -= jsonLen(m.Path) + jsonLen(m.Text) + 80; f.room < 0 {
		f.full = true
		return
	}
	if !m.Context {
		f.hits++
	}
	f.out = append(f.out, m)
}

// contents is the search of one file in mode content. It adds the matching lines and their context
// lines to found, each line only once.
type contents struct {
	matcher       *matcher
	found         *found
	before, after int
	path          string
	data          []byte
	// next is the offset of the line after the last line that was added; nextNo is the number of that next line.
	next, nextNo int
	// owed is how many context lines after the last match are still to be added.
	owed int
}

// match adds the matching line with the number no, from offset start to end, and before it its
// context lines. It returns false if the search must stop.
func (c *contents) match(start, end, no int) bool {
	if start < c.next {
		return true // the line was added already, for an earlier match
	}
	if c.found.atLimit() {
		return false
	}
	c.trail(start)
	from, fromNo := start, no
	for n := 0; n < c.before && from > c.next; n++ {
		from = lineStart(c.data, from-1)
		fromNo--
	}
	for from < start && !c.found.full {
		e := lineEnd(c.data, from)
		c.line(from, e, fromNo, true)
		from, fromNo = e+1, fromNo+1
	}
	if c.found.full {
		return false
	}
	c.line(start, end, no, false)
	c.owed = c.after
	return !c.found.full
}

// trail adds the context lines that still belong after the last match, as far as they begin before the offset to.
func (c *contents) trail(to int) {
	for c.owed > 0 && c.next < to && !c.found.full {
		c.owed--
		c.line(c.next, lineEnd(c.data, c.next), c.nextNo, true)
	}
}

func (c *contents) line(start, end, no int, context bool) {
	c.next, c.nextNo = end+1, no+1
	c.found.add(wire.GrepMatch{Path: c.path, Line: no, Text: c.cut(c.data[start:end]), Context: context})
}

// cut returns a line as the answer has it: without a carriage return at its end and as valid
// UTF-8. Of a line with more than maxLine bytes it returns maxLine bytes around the match, with "…"
// at each end that was cut.
func (c *contents) cut(line []byte) string {
	line = trimCR(line)
	if len(line) <= maxLine {
		return strings.ToValidUTF8(string(line), "\uFFFD")
	}
	from := 0
	if m := c.matcher.re.FindIndex(line); m != nil && m[0] > maxLine/2 {
		from = min(m[0]-maxLine/4, len(line)-maxLine)
	}
	text := string(line[from:min(from+maxLine, len(line))])
	if from > 0 {
		text = "…" + text
	}
	if from+maxLine < len(line) {
		text += "…"
	}
	// The cut can split a character at either end: drop its remaining bytes.
	return strings.ToValidUTF8(text, "")
}
