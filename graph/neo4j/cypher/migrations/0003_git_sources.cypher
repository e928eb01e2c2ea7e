// Git sources: branch, path, accepted licences, login, and the result of the last fetch.
MATCH (s:Source) WHERE s.branch IS NULL
SET s.branch = '', s.path = '', s.licences = [], s.credential_file = '', s.poll_seconds = 0.0,
    s.commit = '', s.last_attempt = 0.0, s.last_error = '';
