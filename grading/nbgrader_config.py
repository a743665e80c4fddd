"""nbgrader's configuration: the course's own folder names.

nbgrader finds this file when it runs in grading/, or with JUPYTER_CONFIG_PATH set to that folder.
"""

import sys
from pathlib import Path

from traitlets.config import get_config

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from tools.exercise_notebooks import release_preprocessors  # noqa: E402

c = get_config()

c.CourseDirectory.root = str(ROOT)
c.CourseDirectory.course_id = "software-pipelining"
c.CourseDirectory.source_directory = "solutions"
c.CourseDirectory.release_directory = "exercises"
c.CourseDirectory.submitted_directory = "grading/submitted"
c.CourseDirectory.autograded_directory = "grading/autograded"
c.CourseDirectory.feedback_directory = "grading/feedback"
c.CourseDirectory.db_url = f"sqlite:///{ROOT / 'grading' / 'gradebook.db'}?timeout=60"
c.CourseDirectory.ignore = [".ipynb_checkpoints", "*.pyc", "__pycache__", "feedback"]

c.GenerateAssignment.preprocessors = release_preprocessors()
