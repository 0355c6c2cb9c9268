package builtin

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/tool"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

const (
	readLines = 2000
	// readWidth is how many characters of a line are shown.
	readWidth = 2000
	// readBytes is the number of bytes of text after which a Read shows no further line.
	readBytes = 256 << 10
	// readFirst is how many bytes are fetched first, readPiece how many at a time after that.
	readFirst = 128 << 10
	readPiece = 1 << 20
	// readSeek is how many bytes of a file are searched for the first line to show.
	readSeek = 512 << 20
)

var readSpec = tool.Spec{
	Name: "Read",
	Description: "Reads a text file and shows it with line numbers, like cat -n. " +
		"Up to 2000 lines are shown, each up to 2000 characters; offset and limit read other parts of a long file.",
	Schema: schema(`{"type":"object","properties":{` +
		`"file_path":{"type":"string","description":"The file; relative paths are relative to the workspace"},` +
		`"offset":{"type":"integer","minimum":1,"description":"The first line to show, counting from 1"},` +
		`"limit":{"type":"integer","minimum":1,"description":"How many lines to show (default 2000)"}` +
		`},"required":["file_path"],"additionalProperties":false}`),
	Effect: tool.Read, Where: tool.InBox,
}

func runRead(ctx context.Context, call tool.Call) (tool.Result, error) {
	in := newInput(call.Input)
	path := in.filled("file_path")
	first := in.number("offset", 1, 0, 1<<40)
	limit := in.number("limit", readLines, 1, 1<<40)
	if err := in.done(); err != nil {
		return tool.Result{}, err
	}
	v := &lines{first: max(first, 1), limit: min(limit, 10*readLines), no: 1}
	note := ""
	var at int64
	for piece := int64(readFirst); !v.full; piece = readPiece {
		ans, err := call.Box.Read(ctx, wire.ReadRequest{Path: path, Offset: at, Limit: piece, Where: at == 0 && call.Unsaved != nil}, v)
		if err != nil {
			return tool.Result{}, err
		}
		if at == 0 {
			var text string
			var differs bool
			if text, differs, note, err = unsaved(ctx, call, ans.Below); err != nil {
				return tool.Result{}, err
			}
			if differs {
				v = &lines{first: v.first, limit: v.limit, no: 1}
				_, _ = v.Write([]byte(text))
				v.end()
				break
			}
		}
		if v.binary {
			return tool.Result{}, bad("%s is a binary file", holdfast.Quote(path))
		}
		if at += ans.Sent; ans.Sent < piece {
			v.end()
			break
		}
		if at >= readSeek && v.shown == 0 {
			return tool.Result{}, bad("line %d of %s comes after the first %d MB of the file: read it with a command", v.first, holdfast.Quote(path), readSeek>>20)
		}
	}
	res := v.result(path)
	res.Content = note + res.Content
	return res, nil
}

// lines is a writer that turns the bytes of a file into numbered lines, from line first on. It
// stores only the shown text and the beginning of the current line.
type lines struct {
	first, limit int64
	// no is the number of the current line, line the stored beginning of it, and width its number
	// of characters so far.
	no    int64
	line  []byte
	width int
	begun bool
	shown int64
	out   strings.Builder
	// full is true once no more lines are to be shown, more if the file has more than was shown,
	// binary if the file is not text.
	full, more, binary bool
}

// Write implements io.Writer.
func (v *lines) Write(p []byte) (int, error) {
	n := len(p)
	if bytes.IndexByte(p, 0) >= 0 && !v.full {
		v.binary, v.full = true, true
	}
	for len(p) > 0 && !v.full {
		if v.shown == v.limit || v.out.Len() > readBytes {
			v.full, v.more = true, true
			break
		}
		part, rest, ended := bytes.Cut(p, []byte{'\n'})
		v.begun = true
		if v.no >= v.first {
			v.add(part)
		}
		if p = rest; ended {
			v.next()
		}
	}
	return n, nil
}

// add appends a part of the current line.
func (v *lines) add(part []byte) {
	v.width += utf8.RuneCount(part) // a character cut between two parts counts twice
	if room := utf8.UTFMax*readWidth - len(v.line); room > 0 {
		v.line = append(v.line, part[:min(room, len(part))]...)
	}
}

// next ends the current line.
func (v *lines) next() {
	if v.no >= v.first {
		text := bytes.TrimSuffix(v.line, []byte{'\r'})
		more := ""
		if v.width > readWidth {
			text, more = firstRunes(text, readWidth), fmt.Sprintf("… [line cut at %d characters]", readWidth)
		}
		fmt.Fprintf(&v.out, "%6d\t%s%s\n", v.no, text, more)
		v.shown++
	}
	v.no++
	v.line, v.width, v.begun = v.line[:0], 0, false
}

// end is called at the end of the file. It ends a last line that has no newline.
func (v *lines) end() {
	if v.begun {
		v.next()
	}
	v.full = true
}

func firstRunes(s []byte, n int) []byte {
	i := 0
	for ; n > 0 && i < len(s); n-- {
		_, size := utf8.DecodeRune(s[i:])
		i += size
	}
	return s[:i]
}

func (v *lines) result(path string) tool.Result {
	total := v.no - 1
	switch {
	case v.shown == 0 && total == 0:
		return ok("(the file is empty)")
	case v.shown == 0:
		return refusal(bad("%s has %d lines, so there is no line %d", holdfast.Quote(path), total, v.first))
	case v.more:
		next := v.first + v.shown
		fmt.Fprintf(&v.out, "[lines %d to %d; there are more: read on with offset %d]\n", v.first, next-1, next)
	}
	return ok(v.out.String())
}
