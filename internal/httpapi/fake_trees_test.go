package httpapi

import (
	"context"
	"io"

	"github.com/holdfast-run/holdfast"
)

func (f *fakeEngine) PackTree(_ context.Context, _ holdfast.SessionID, path string, w io.Writer) (holdfast.Copied, error) {
	if err := f.see(path); err != nil {
		return holdfast.Copied{}, err
	}
	_, err := io.WriteString(w, "an archive of "+path)
	if err == nil && path == "cut" {
		err = holdfast.Errorf(holdfast.KindUnavailable, "pack", "the box is gone")
	}
	return holdfast.Copied{}, err
}

func (f *fakeEngine) UnpackTree(_ context.Context, _ holdfast.SessionID, to holdfast.CopyTo, r io.Reader) (holdfast.Copied, error) {
	data, err := io.ReadAll(r)
	if serr := f.see([]any{to, string(data)}); serr != nil {
		return holdfast.Copied{}, serr
	}
	return holdfast.Copied{Bytes: int64(len(data))}, err
}

func (f *fakeEngine) Import(_ context.Context, id holdfast.SessionID, r io.Reader) (holdfast.Imported, error) {
	data, err := io.ReadAll(r)
	if serr := f.see(string(data)); serr != nil {
		return holdfast.Imported{}, serr
	}
	return holdfast.Imported{Session: holdfast.Session{ID: id}, Copied: holdfast.Copied{Bytes: int64(len(data))}}, err
}

func (f *fakeEngine) Diff(_ context.Context, _ holdfast.SessionID, format holdfast.DiffFormat, w io.Writer) (string, error) {
	if err := f.see(string(format)); err != nil {
		return "", err
	}
	if format == holdfast.DiffNames {
		return "first line\nsecond: 100 %", nil
	}
	_, err := io.WriteString(w, "+one\n")
	return "", err
}
