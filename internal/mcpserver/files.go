package mcpserver

import (
	"context"
	"encoding/base64"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/clip"
)

// Files is the access to a session's files.
type Files interface {
	ListFiles(ctx context.Context, id holdfast.SessionID, name string) (holdfast.FileList, error)
	ReadFile(ctx context.Context, id holdfast.SessionID, name string) (io.ReadCloser, error)
	WriteFile(ctx context.Context, id holdfast.SessionID, name string, data io.Reader, mode uint32) (holdfast.FileInfo, error)
}

const (
	// maxPiece is the most bytes of a file in one answer.
	maxPiece = 48 << 10
	// maxListed is the most entries of a directory in one answer.
	maxListed = 300
	// maxWritten is the most bytes that write_file accepts.
	maxWritten = 4 << 20
)

type pathIn struct {
	Session string `json:"session" jsonschema:"the session's id"`
	Path    string `json:"path,omitempty" jsonschema:"a path relative to /workspace; the workspace itself when absent"`
}

type fileOut struct {
	Path     string `json:"path"`
	Type     string `json:"type"`
	Size     int64  `json:"size"`
	Modified string `json:"modified"`
	Target   string `json:"target,omitempty"`
}

type filesOut struct {
	Entries []fileOut `json:"entries"`
	// Truncated is true if the directory has more entries.
	Truncated bool `json:"truncated,omitempty"`
}

func wireFile(f holdfast.FileInfo) fileOut {
	return fileOut{Path: f.Path, Type: f.Type, Size: f.Size, Modified: f.ModTime.UTC().Format(time.RFC3339), Target: clip.Counted(f.Target, maxField)}
}

func (s *server) listFiles(ctx context.Context, _ progress, in pathIn) (filesOut, error) {
	out := filesOut{Entries: []fileOut{}}
	one, err := s.within(ctx, in.Session)
	if err != nil {
		return out, err
	}
	list, err := s.cfg.Files.ListFiles(ctx, one.ID, in.Path)
	if err != nil {
		return out, err
	}
	out.Truncated = list.Truncated || len(list.Entries) > maxListed
	for _, f := range list.Entries[:min(len(list.Entries), maxListed)] {
		out.Entries = append(out.Entries, wireFile(f))
	}
	return out, nil
}

type readFileIn struct {
	Session string `json:"session" jsonschema:"the session's id"`
	Path    string `json:"path" jsonschema:"the file, relative to /workspace"`
	Offset  int64  `json:"offset,omitempty" jsonschema:"where to begin, in bytes: the next_offset of the answer before"`
}

type readFileOut struct {
	// Text is the piece if it is UTF-8; otherwise Base64 is set.
	Text   string `json:"text,omitempty"`
	Base64 string `json:"base64,omitempty"`
	// NextOffset is the offset of the next piece; it is absent for the last one.
	NextOffset int64 `json:"next_offset,omitempty"`
}

// readFile returns one piece of a file. The bytes before it are read and dropped.
func (s *server) readFile(ctx context.Context, _ progress, in readFileIn) (readFileOut, error) {
	var out readFileOut
	one, err := s.within(ctx, in.Session)
	if err != nil {
		return out, err
	}
	if in.Offset < 0 {
		return out, holdfast.Errorf(holdfast.KindInvalid, "mcp", "the offset %d in the file is negative", in.Offset)
	}
	file, err := s.cfg.Files.ReadFile(ctx, one.ID, in.Path)
	if err != nil {
		return out, err
	}
	defer file.Close()
	if _, err := io.CopyN(io.Discard, file, in.Offset); err == io.EOF {
		return out, nil
	} else if err != nil {
		return out, err
	}
	data, err := io.ReadAll(io.LimitReader(file, maxPiece+1))
	if err != nil {
		return out, err
	}
	if len(data) > maxPiece {
		data = whole(data[:maxPiece])
		out.NextOffset = in.Offset + int64(len(data))
	}
	if utf8.Valid(data) {
		out.Text = string(data)
	} else {
		out.Base64 = base64.StdEncoding.EncodeToString(data)
	}
	return out, nil
}

// whole removes an incomplete character from the end of a text; data that is not text stays unchanged.
func whole(data []byte) []byte {
	for n := range utf8.UTFMax {
		if cut := data[:max(len(data)-n, 0)]; utf8.Valid(cut) {
			return cut
		}
	}
	return data
}

type writeFileIn struct {
	Session string `json:"session" jsonschema:"the session's id"`
	Path    string `json:"path" jsonschema:"the file, relative to /workspace; directories are made"`
	Text    string `json:"text,omitempty" jsonschema:"the content"`
	Base64  string `json:"base64,omitempty" jsonschema:"the content in base64, if it is not text"`
}

func (s *server) writeFile(ctx context.Context, _ progress, in writeFileIn) (fileOut, error) {
	one, err := s.within(ctx, in.Session)
	if err != nil {
		return fileOut{}, err
	}
	text := in.Text
	if in.Base64 != "" {
		data, err := base64.StdEncoding.DecodeString(in.Base64)
		if err != nil || text != "" {
			return fileOut{}, holdfast.Errorf(holdfast.KindInvalid, "mcp", "the content of the file cannot be decoded from base64, or text is given as well")
		}
		text = string(data)
	}
	if len(text) > maxWritten {
		return fileOut{}, holdfast.Errorf(holdfast.KindTooLarge, "mcp", "the content has %d bytes, more than the limit of %d bytes for a file", len(text), maxWritten).
			WithHint("let the session make the file, or copy the file with: holdfast cp")
	}
	info, err := s.cfg.Files.WriteFile(ctx, one.ID, in.Path, strings.NewReader(text), 0)
	return wireFile(info), err
}
