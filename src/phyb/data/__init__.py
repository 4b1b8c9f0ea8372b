"""Log in: one transition schema, readers and writers, a validator, behaviour collection."""

from phyb.data.describe import describe as describe
from phyb.data.files import load_log as load_log
from phyb.data.files import save_log as save_log
from phyb.data.log import Log as Log
from phyb.data.validate import validate as validate
