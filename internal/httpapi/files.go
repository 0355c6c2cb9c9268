package httpapi

import (
	"cmp"
	"context"
	"io"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/httpapi/body"
	"github.com/holdfast-run/holdfast/internal/httpapi/spec"
)

type filesInput struct {
	SessionInput
	plain
	At string `query:"at" doc:"Read the files of this checkpoint, or of the end of this turn; absent: as they are now."`
}

// filesOf reads the files of a session: those in its box, or those of a checkpoint.
type filesOf interface {
	ReadFile(ctx context.Context, id holdfast.SessionID, path string, w io.Writer) error
	ListFiles(ctx context.Context, id holdfast.SessionID, path string) (holdfast.FileList, error)
}

type writeInput struct {
	SessionInput
	plain
	Mode string `query:"mode" doc:"The permission bits of a new file, octal; 0644 when absent." example:"0755"`
}

type writeOutput struct {
	Body struct {
		File holdfast.FileInfo `json:"file"`
	}
}

type removeInput struct {
	SessionInput
	plain
	Recursive bool `query:"recursive" doc:"Remove a directory with all that is in it."`
}

func (a *API) fileRoutes() {
	const tag, root, one = "files", "/v1/sessions/{id}/files", "/v1/sessions/{id}/files/{path...}"
	list := route(http.MethodGet, root, "list-files", tag, "List the workspace's top directory")
	list.Responses = map[string]*huma.Response{"200": spec.JSON(a.huma, "The directory.", holdfast.FileList{})}
	handleOne(a, list, a.readFile)

	read := route(http.MethodGet, one, "read-file", tag, "Read a file's bytes, or list a directory as JSON")
	read.Parameters = spec.FilePath()
	read.Responses = map[string]*huma.Response{"200": spec.JSON(a.huma, "The file, or the directory.", holdfast.FileList{})}
	read.Responses["200"].Content["application/octet-stream"] = spec.Binary()
	handleOne(a, read, a.readFile)

	write := route(http.MethodPut, one, "write-file", tag, "Create or replace a file")
	write.Parameters = spec.FilePath()
	write.MaxBodyBytes = a.cfg.Bounds.File
	write.RequestBody = &huma.RequestBody{
		Description: "The file's bytes.", Content: map[string]*huma.MediaType{"application/octet-stream": spec.Binary()},
	}
	handleOne(a, write, a.writeFile)

	remove := route(http.MethodDelete, one, "remove-file", tag, "Remove a file or a directory")
	remove.Parameters = spec.FilePath()
	handleOne(a, remove, a.removeFile)

	// Without these routes the router would redirect PUT and DELETE of /files to the path with a slash at its end.
	for _, method := range []string{http.MethodPut, http.MethodDelete} {
		a.mux.HandleFunc(method+" "+root, func(w http.ResponseWriter, r *http.Request) {
			_, err := fileName(r)
			a.problems.Answer(w, r, err)
		})
	}
}

func (a *API) readFile(ctx context.Context, id holdfast.SessionID, in *filesInput) (*raw, error) {
	files := filesOf(a.cfg.Boxes)
	if in.At != "" {
		at, err := holdfast.Parse[holdfast.CheckpointID](in.At)
		if err != nil {
			return nil, err
		}
		files = kept{a.cfg.Checkpoints, at}
	}
	name := in.r.PathValue("path")
	if dir := strings.TrimRight(name, "/"); dir != name || name == "" {
		switch {
		case name == "":
			dir = "." // an empty path means the workspace's top directory
		case dir == "":
			dir = "/"
		}
		return a.listFiles(ctx, files, id, dir)
	}
	return answer(func(w http.ResponseWriter, r *http.Request) {
		out := &download{w: w, name: path.Base(name)}
		err := files.ReadFile(r.Context(), id, name, out)
		switch {
		case err == nil:
			out.begin() // sends the header of an empty file, for which ReadFile writes nothing
		case out.begun:
			// The status is sent already: only a broken connection shows that bytes are missing.
			panic(http.ErrAbortHandler)
		case holdfast.IsKind(err, holdfast.KindInvalid):
			// ReadFile returns invalid for a directory: try to list the path.
			list, lerr := files.ListFiles(r.Context(), id, name)
			if lerr != nil {
				a.problems.Answer(w, r, err)
				return
			}
			a.writeJSON(w, r, http.StatusOK, notNil(list))
		default:
			a.problems.Answer(w, r, err)
		}
	}), nil
}

func (a *API) listFiles(ctx context.Context, files filesOf, id holdfast.SessionID, name string) (*raw, error) {
	list, err := files.ListFiles(ctx, id, name)
	if err != nil {
		return nil, err
	}
	return answer(func(w http.ResponseWriter, r *http.Request) { a.writeJSON(w, r, http.StatusOK, notNil(list)) }), nil
}

func notNil(l holdfast.FileList) holdfast.FileList {
	l.Entries = some(l.Entries)
	return l
}

func (a *API) writeFile(ctx context.Context, id holdfast.SessionID, in *writeInput) (*writeOutput, error) {
	var mode uint64
	var err error
	if in.Mode != "" {
		if mode, err = strconv.ParseUint(in.Mode, 8, 32); err != nil || mode > 0o777 {
			return nil, holdfast.Errorf(holdfast.KindInvalid, "files", "the file mode %s is not octal permission bits up to 777", holdfast.Quote(in.Mode)).
				WithHint("use an octal mode such as 0644 or 0755")
		}
	}
	name, err := fileName(in.r)
	if err != nil {
		return nil, err
	}
	data, err := body.ReadAll(in.w, in.r, a.cfg.Bounds.File)
	if err != nil {
		return nil, err
	}
	out := &writeOutput{}
	out.Body.File, err = a.cfg.Boxes.WriteFile(ctx, id, name, data, uint32(mode))
	return out, err
}

func (a *API) removeFile(ctx context.Context, id holdfast.SessionID, in *removeInput) (*struct{}, error) {
	name, err := fileName(in.r)
	if err != nil {
		return nil, err
	}
	return nil, a.cfg.Boxes.RemoveFile(ctx, id, name, in.Recursive)
}

// fileName returns the path of the one file that a request changes.
func fileName(r *http.Request) (string, error) {
	name := r.PathValue("path")
	if name == "" || name[len(name)-1] == '/' {
		return "", holdfast.Errorf(holdfast.KindInvalid, "files", "the path %s is that of a directory, not of a file", holdfast.Quote(name)).
			WithHint("put the path of a file, relative to the workspace, behind /files/ in the URL")
	}
	return name, nil
}

// download sends the bytes of a file or an archive as the answer. The header is sent with the first
// byte, so that an error before that is still a problem document.
type download struct {
	w http.ResponseWriter
	// name is the file's name, typ the media type; both may be empty.
	name, typ string
	begun     bool
}

func (d *download) begin() {
	if d.begun {
		return
	}
	d.begun = true
	h := d.w.Header()
	// A browser must not render content that an agent wrote.
	h.Set("Content-Type", cmp.Or(d.typ, "application/octet-stream"))
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	h.Set("Cache-Control", "no-store")
	disposition := mime.FormatMediaType("attachment", map[string]string{"filename": d.name})
	if disposition == "" || d.name == "" {
		disposition = "attachment"
	}
	h.Set("Content-Disposition", disposition)
	d.w.WriteHeader(http.StatusOK)
}

func (d *download) Write(p []byte) (int, error) {
	d.begin()
	return d.w.Write(p)
}
